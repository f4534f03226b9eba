"""What is prepared for a ragged product serves every number of rows of the same class."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from tests.support.made_up import H200  # noqa: E402
from tilewright import Device, ragged_matmul, synchronize  # noqa: E402
from tilewright.backends.cuda.machine import driver  # noqa: E402
from tilewright.backends.cuda.ragged import engine, hopper_cuts, hopper_depths, packed  # noqa: E402
from tilewright.backends.cuda.ragged import hopper_rows as hopper  # noqa: E402
from tilewright.backends.cuda.ragged.tiles import is_tiny, tile_of  # noqa: E402
from tilewright.errors import OperandError  # noqa: E402
from tilewright.facts.verdict import Proposal  # noqa: E402

UNITS = 132
HOW = ("ieee", True, 0, None)


def decided(itemsize: int, rows: int, groups: int, side: int) -> tuple[Any, ...]:
    """All that is decided by how many rows there are."""
    tiny = is_tiny(rows, groups, side, side)
    return (
        tiny,
        tile_of(itemsize, rows, groups, 2**18, tiny=tiny),
        hopper.is_long(rows, groups, hopper.ROWS),
        hopper_cuts.choice(rows // groups, groups, side, side, UNITS),
        hopper_depths.shape_of(rows, groups),
    )


@pytest.mark.parametrize("itemsize", [2, 4, 8])
@pytest.mark.parametrize("groups", [1, 3, 64, 1024, 5000])
def test_rows_of_a_class_are_planned_alike(groups: int, itemsize: int) -> None:
    seen: dict[tuple[int, int], Any] = {}
    edges = [edge * groups for edge in range(1500)]
    for rows in sorted({max(edge + by, 1) for edge in edges for by in (-1, 0, groups // 2)}):
        for side in (64, 65, 1500):
            found = decided(itemsize, rows, groups, side)
            key = (engine._class_of(UNITS, rows, groups, side, side), side)
            assert seen.setdefault(key, found) == found, rows
    assert engine._class_of(UNITS, 0, groups) not in {one for one, _ in seen}
    assert len(seen) > 8


def operands(rows: int, dtype: Any, k: int = 48, n: int = 2048) -> tuple[Any, ...]:
    """x, w, offsets, no bias, out, no index and no h, of 8 groups and never read."""
    x, w, out = torch.empty(rows, k), torch.empty(8, k, n), torch.empty(rows, n)
    ends = torch.empty(8, dtype=torch.int32)
    return x.to(dtype), w.to(dtype), ends, None, out.to(dtype), None, None


def on_hopper(patch: pytest.MonkeyPatch, units: int = UNITS) -> Device:
    """From now on tensors of the host lie on such a GPU, as far as the engine asks."""
    device = replace(H200, compute_units=units, features=frozenset({"wgmma"}))
    patch.setattr(engine, "_device", lambda _: device)
    patch.setattr(engine, "_units_of", engine._units_of.__wrapped__)
    return device


@pytest.mark.parametrize("units", [78, UNITS])
@pytest.mark.parametrize("k", [48, 45])
def test_rows_are_cut_as_their_class_says(
    k: int, units: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where what is multiplied is a packed copy with a longer k."""
    asked: list[tuple[int, ...]] = []
    monkeypatch.setattr(hopper_cuts, "choice", lambda *facts: asked.append(facts) or 0)
    monkeypatch.setattr(hopper, "prepared", lambda *_: None)
    monkeypatch.setattr(hopper, "RowPlan", lambda *_, **__: None)
    device, given = on_hopper(monkeypatch, units), operands(1600, torch.bfloat16, k)
    engine._key("rows", given, HOW)
    packed_work = packed._packed(engine._work(given, HOW), packed._nowhere)
    assert (packed_work.x, packed_work.left.w.shape[1]) == (k != 48, 48)
    hopper.HopperRows().bind(Proposal("hopper", device, None, ""), packed_work.left)
    assert asked == [(200, 8, k, 2048, units)] * 2


def test_only_halves_on_hopper_have_classes_of_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = 8 * 192, 8 * 256
    assert [hopper_cuts.choice(rows // 8, 8, 48, 2048, UNITS) for rows in (few, many)] == [0, 1]

    def classes(dtype: Any) -> int:
        every = (operands(rows, dtype) for rows in (few, many))
        return len({engine._key("rows", one, HOW)[5] for one in every})

    assert classes(torch.bfloat16) == 1, "no GPU of this kind"
    on_hopper(monkeypatch)
    assert classes(torch.float32) == 1
    assert classes(torch.bfloat16) == classes(torch.float16) == 2


def test_what_has_no_memory_is_refused_by_name() -> None:
    # x begins within its storage: torch says an address of it, its offset, when that is given back
    x, w, ends = torch.ones(8, 2)[2:], torch.ones(2, 2, 3), torch.tensor([2, 6])
    out = torch.full((6, 3), float("nan"))
    for gone in (x, w, ends):
        size = gone.untyped_storage().nbytes()
        gone.untyped_storage().resize_(0)
        name = {id(x): "x", id(w): "w", id(ends): "offsets"}[id(gone)]
        with pytest.raises(OperandError, match=f"{name} of shape .*: has no memory"):
            engine.rows(x, w, ends, None, out, "ieee", clear=False)
        gone.untyped_storage().resize_(size)
    assert bool(out.isnan().all())


@pytest.mark.gpu
@pytest.mark.skipif(driver.missing() is not None, reason=str(driver.missing()))
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_rows_that_change_find_what_was_prepared_and_are_right(dtype: Any) -> None:
    torch.manual_seed(0)
    groups, k, n = 8, 128, 96
    w, x = torch.randn(groups, k, n, device="cuda"), torch.randn(4000, k, device="cuda")
    y, w, x = torch.randn(4000, n, device="cuda").to(dtype), w.to(dtype), x.to(dtype)
    engine._ways.clear()
    kept = 0
    for turn, t in enumerate((1001, 1002, 1000, 1015, 1016, 999, 1001)):
        ends = torch.linspace(t / groups, t, groups, device="cuda").round().int()
        found, deep = ragged_matmul(x[:t], w, ends), ragged_matmul(x[:t].t(), y[:t], ends)
        kept = kept or len(engine._ways)
        assert len(engine._ways) == kept, f"turn {turn}"
        first = 0
        for group, end in enumerate(ends.tolist()):
            part = slice(first, end)
            for one, truth in (
                (found[part], x[part].double() @ w[group].double()),
                (deep[group], x[part].t().double() @ y[part].double()),
            ):
                assert float((one.double() - truth).norm() / truth.norm()) < 4e-3
            first = end
    synchronize()
