"""What is prepared for a ragged product serves every number of rows of the same class."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from tilewright import ragged_matmul, synchronize  # noqa: E402
from tilewright.backends.cuda.machine import driver  # noqa: E402
from tilewright.backends.cuda.ragged import engine, hopper_cuts, hopper_depths  # noqa: E402
from tilewright.backends.cuda.ragged import hopper_rows as hopper  # noqa: E402
from tilewright.backends.cuda.ragged.tiles import is_tiny, tile_of  # noqa: E402
from tilewright.errors import OperandError  # noqa: E402


def decided(itemsize: int, rows: int, groups: int, side: int) -> tuple[Any, ...]:
    """All that is decided by how many rows there are."""
    tiny = is_tiny(rows, groups, side, side)
    return (
        tiny,
        tile_of(itemsize, rows, groups, 2**18, tiny=tiny),
        hopper.is_long(rows, groups, hopper.ROWS),
        hopper_cuts.choice(rows // groups, groups, side, side),
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
            key = (engine._class_of(rows, groups, side, side), side)
            assert seen.setdefault(key, found) == found, rows
    assert engine._class_of(0, groups) not in {one for one, _ in seen}
    assert len(seen) > 8


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
