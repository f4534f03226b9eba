"""Contractions of symmray's block-sparse arrays with the door open, beside symmray's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

sr = pytest.importorskip("symmray", reason="symmray is not installed")

from symmray.sparse import sparse_array_common as library  # noqa: E402
from symmray.utils_test import rand_valid_tensordot  # noqa: E402

from tilewright.doors import symmray as door  # noqa: E402
from tilewright.errors import DeviceError  # noqa: E402

MODES = ("blockwise", "fused")


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    door.uninstall()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many products each contraction made here."""
    counts: list[int] = []
    products = door._products

    def counted(a: list[Any], b: list[Any], into: list[int]) -> Any:
        counts.append(len(a))
        return products(a, b, into)

    monkeypatch.setattr(door, "_products", counted)
    return counts


def drawn(symmetry: str, seed: int, **options: Any) -> tuple[Any, Any, Any]:
    options.setdefault("ncon", 1 + seed % 2)
    options.update(min_ndim=2, max_ndim=4, min_d=2, max_d=5, seed=seed)
    return rand_valid_tensordot(symmetry, **options)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("symmetry", ["Z2", "U1", "Z2Z2", "U1U1"])
@pytest.mark.parametrize("fermionic", [False, True])
@pytest.mark.parametrize("dtype", ["float64", "complex128", "complex64"])
def test_contractions_are_symmrays_own(
    mode: str, symmetry: str, fermionic: bool, dtype: str, asked: list[int]
) -> None:
    for seed in range(4):
        a, b, axes = drawn(symmetry, seed, dtype=dtype, fermionic=fermionic)
        wanted = sr.tensordot(a, b, axes, mode=mode, preserve_array=True)
        door.install()
        found = sr.tensordot(a, b, axes, mode=mode, preserve_array=True)
        door.uninstall()
        found.check()
        assert {*found.sectors} == {*wanted.sectors}
        assert found.allclose(wanted, rtol=1e-4)
        assert all(block.dtype == dtype for block in found.get_all_blocks())
    assert asked or mode == "fused"  # of which some draw nothing that meets


def test_torchs_blocks_are_contracted_and_differentiated(asked: list[int]) -> None:
    torch = pytest.importorskip("torch")
    found = []
    for install in (False, True):
        (door.install if install else door.uninstall)()
        a, b, axes = drawn("U1", 1)
        for one in (a, b):
            one.apply_to_arrays(lambda x: torch.from_numpy(np.asarray(x)).requires_grad_())
        made = sr.tensordot(a, b, axes, mode="blockwise", preserve_array=True)
        sum(block.square().sum() for block in made.get_all_blocks()).backward()
        found.append([x.grad for one in (a, b) for x in one.get_all_blocks() if x.grad is not None])
    assert asked
    torch.testing.assert_close(*found)


def test_what_is_not_served_stays_symmrays(asked: list[int]) -> None:
    a, b, axes = drawn("Z2", 0)
    outer = sr.tensordot(a, b, 0)
    b.apply_to_arrays(lambda x: x.astype("float32"))
    mixed = sr.tensordot(a, b, axes, preserve_array=True)
    door.install()
    assert sr.tensordot(a, b, 0).allclose(outer, rtol=1e-5)
    assert sr.tensordot(a, b, axes, preserve_array=True).allclose(mixed)
    assert asked == []


def test_a_network_of_quimbs_contracts_to_the_same_number(asked: list[int]) -> None:
    quimb = pytest.importorskip("quimb.tensor", reason="quimb is not installed")
    door.uninstall()
    edges = [("x", "y"), ("y", "z"), ("x", "z")]
    index = [sr.utils.rand_index("U1", 6, seed=seed) for seed in range(3)]
    get = {edge: index[i] for i, edge in enumerate(edges)}

    def network() -> Any:
        tensors = []
        for at, node in enumerate("xyz"):
            mine = [edge for edge in edges if node in edge]
            indices = [get[e] if e[0] == node else get[e].conj() for e in mine]
            data = sr.U1Array.random(indices, charge=0, seed=at)
            tensors.append(quimb.Tensor(data, inds=["".join(edge) for edge in mine]))
        return quimb.TensorNetwork(tensors)

    wanted = network().contract()
    door.install()
    assert np.isclose(network().contract(), wanted)
    assert asked


def test_the_door_closes_and_tells_of_a_symmray_it_does_not_know(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = library._tensordot_blockwise
    door.install()
    door.install()
    assert library._tensordot_blockwise is door._contracted
    door.uninstall()
    assert library._tensordot_blockwise is own
    monkeypatch.delattr(library, "_tensordot_blockwise")
    with pytest.raises(DeviceError, match=r"accepted is symmray 0\.4"):
        door.install()
