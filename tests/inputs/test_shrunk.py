"""Tensors whose storage was made smaller after they were: every way in refuses them by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import onebit
from tilewright.arrays import storage
from tilewright.errors import OperandError

torch: Any = pytest.importorskip("torch")


def ends() -> Any:
    return torch.tensor([3, 8], dtype=torch.int32)


def dense(**more: Any) -> dict[str, Any]:
    return {"a": torch.randn(8, 5), "b": torch.randn(5, 6), **more}


def ragged(**more: Any) -> dict[str, Any]:
    return {"x": torch.randn(8, 16), "w": torch.randn(2, 16, 24), "offsets": ends(), **more}


def scaled() -> dict[str, Any]:
    x, scale_a = tw.quantise_fp8(torch.randn(8, 128))
    w, scale_b = tw.quantise_fp8(torch.randn(2, 128, 24), along=-2)
    return {"x": x, "w": w, "offsets": ends(), "scale_a": scale_a, "scale_b": scale_b}


def experts() -> dict[str, Any]:
    return {
        "x": torch.randn(8, 16),
        "w_up": torch.randn(2, 16, 32),
        "w_down": torch.randn(2, 16, 16),
        "experts": torch.ones(8, 1, dtype=torch.int32),
        "weights": torch.ones(8, 1),
    }


def listed(count: int, **more: Any) -> Callable[..., Any]:
    def products(a: Any, b: Any, bias: Any = None, out: Any = None) -> Any:
        other = torch.randn(8, 6).to(a)
        vectors = None if bias is None else [*[torch.randn(6).to(a)] * (count - 1), bias]
        into = None if out is None else [*[other.clone() for _ in range(count - 1)], out]
        sound = [torch.randn_like(one) for one in (a, b)]
        left, right = ([one] * (count - 1) for one in sound)
        return tw.grouped_matmul([*left, a], [*right, b], out=into, bias=vectors, **more)

    return products


WAYS: dict[str, tuple[Callable[..., Any], Callable[[], dict[str, Any]]]] = {
    "matmul": (tw.matmul, dense),
    "matmul, bias": (tw.matmul, lambda: dense(bias=torch.randn(6))),
    "matmul, out": (tw.matmul, lambda: dense(out=torch.randn(8, 6))),
    "matmul, beta": (
        lambda **given: tw.matmul(**given, beta=0.5),
        lambda: dense(out=torch.randn(8, 6)),
    ),
    "matmul, planned": (lambda **given: tw.matmul(**given, device="host"), dense),
    "a long list": (listed(300), dense),
    "a list, bias": (listed(3), lambda: dense(bias=torch.randn(6))),
    "a list, out": (listed(3), lambda: dense(out=torch.randn(8, 6))),
    "a list of bfloat16, out": (
        listed(3),
        lambda: {name: one.bfloat16() for name, one in dense(out=torch.randn(8, 6)).items()},
    ),
    "ragged": (tw.ragged_matmul, ragged),
    "ragged, bias": (tw.ragged_matmul, lambda: ragged(bias=torch.randn(2, 24))),
    "ragged, out": (tw.ragged_matmul, lambda: ragged(out=torch.randn(8, 24))),
    "ragged, alone": (lambda **given: tw.ragged_matmul(**given, batch_invariant=True), ragged),
    "ragged depths": (tw.ragged_matmul, lambda: ragged(x=torch.randn(16, 8), w=torch.randn(8, 24))),
    "scaled": (tw.ragged_matmul, scaled),
    "experts": (tw.moe, experts),
    "bits": (onebit.pack, lambda: {"x": torch.randn(8, 70)}),
}
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU of torch's")
# What few products of a processor are torch's own, which does not ask (grouped_quick_tensors.py).
ON_GPU = {"a list of 1": (listed(1), dense), "a list of 9": (listed(9), dense)}
HERE = [(way, name, "cpu") for way, (_, made) in WAYS.items() for name in made()]
THERE = [
    pytest.param(way, name, "cuda", marks=[pytest.mark.gpu, needs_gpu])
    for way, (_, made) in {**WAYS, **ON_GPU}.items()
    for name in made()
    if way != "matmul, planned"
]


def shrunk(value: Any, begins: int) -> tuple[Any, Any]:
    """The same values, so many elements behind where a storage begins, and that storage."""
    flat = torch.empty(begins + value.numel(), dtype=value.dtype, device=value.device)
    lies = flat[begins:].as_strided(value.shape, value.stride(), begins)
    return lies.copy_(value), flat.untyped_storage()


@pytest.mark.parametrize("begins", [0, 16])
@pytest.mark.parametrize(("way", "name", "place"), [*HERE, *THERE])
def test_storage_that_has_shrunk_is_refused_by_name(
    way: str, name: str, place: str, begins: int
) -> None:
    """At the first call, and where calls that lay alike were known before."""
    call, made = {**WAYS, **ON_GPU}[way]
    for known in (0, 3):
        given = {key: one.to(place) for key, one in made().items()}
        given[name], held = shrunk(given[name], begins)
        for _ in range(known):
            call(**given)
        if not held.resizable():  # NumPy has seen it
            continue
        held.resize_(held.nbytes() - given[name].element_size())
        before = given["out"].clone() if "out" in given and name != "out" else None
        with pytest.raises(OperandError, match=rf"^{name}.* storage that holds {held.nbytes()}"):
            call(**given)
        assert before is None or torch.equal(before, given["out"])


@pytest.mark.parametrize("seed", range(3))
def test_how_far_a_tensor_reaches_is_what_its_farthest_element_says(seed: int) -> None:
    drawn = np.random.default_rng(seed)
    for _ in range(40):
        sizes = drawn.integers(0, 4, drawn.integers(0, 4)).tolist()
        steps = drawn.integers(0, 9, len(sizes)).tolist()
        flat = torch.zeros(64)
        one = flat.as_strided(sizes, steps, int(drawn.integers(0, 9)))
        places = [sum(map(int.__mul__, at, steps)) for at in np.ndindex(*sizes)]
        assert storage.reach(one) == 4 * (max(places, default=-1) + 1)
        end = one.storage_offset() * 4 + storage.reach(one)
        for held in (256, end, end - 1, 0):
            flat.untyped_storage().resize_(max(held, 0))
            assert storage.is_short(one) == (one.numel() > 0 and held < end)


@pytest.mark.parametrize("by", ["rows", "columns", "steps", "a view", "broadcast", "nothing"])
@pytest.mark.parametrize("missing", [0, 1])
def test_whether_a_tensor_is_short_is_known_to_the_byte(by: str, missing: int) -> None:
    whole = torch.randn(12, 10)
    views = {
        "rows": whole,
        "columns": whole.T,
        "steps": whole[::2, 1::3],
        "a view": whole[3:7],
        "broadcast": whole[5, 4].expand(3, 4),
        "nothing": whole[4:4],
    }
    one = views[by]
    end = one.storage_offset() * 4 + storage.reach(one)
    one.untyped_storage().resize_(end - missing)
    assert storage.is_short(one) is (missing == 1 and by != "nothing")
