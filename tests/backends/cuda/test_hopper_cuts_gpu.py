"""Rows of groups where the device says how they are cut: right by either cut, and the same bits.

Outputs are poisoned beforehand; the truth is float64's.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.backends.cuda.test_hopper_cuts import device_takes
from tests.backends.cuda.test_hopper_ragged import (
    NAN,
    assert_near,
    offsets_of,
    random,
)
from tests.backends.cuda.test_hopper_ragged import pytestmark as pytestmark
from tilewright.backends.cuda.ragged import hopper_cuts
from tilewright.backends.cuda.ragged.hopper_cuts import EITHER

N, K = 2048, 192
EVEN = [181, 0, 182, 189, 193, 194, 195, 199, 203]
UNEVEN = [48, 55, 0, 137, 181, 192, 272, 314, 337]
ROWS = 1600


def asked(patch: pytest.MonkeyPatch, cut: int = EITHER) -> None:
    """From now on the host takes this cut, or asks the device."""
    patch.setattr(hopper_cuts, "choice", lambda *_: cut)


def operands(dtype: str) -> tuple[Any, Any, Any]:
    """x, the matrices of the groups, and a poisoned result."""
    import torch

    x, w = random(ROWS, K, dtype=dtype), random(len(EVEN), K, N, dtype=dtype)
    return x, w, torch.full((ROWS, N), NAN, device="cuda", dtype=x.dtype)


def assert_right(
    out: Any,
    x: Any,
    w: Any,
    counts: list[int],
    *,
    leading: int = 0,
    bias: Any = None,
    cleared: bool = False,
) -> None:
    """Groups are right, and rows that no group has are as they were, or zero."""
    begin = leading
    for group, count in enumerate(counts):
        part = slice(begin, begin := begin + count)
        assert_near(out[part], x[part], w[group], None if bias is None else bias[group])
    for rest in (out[:leading], out[begin:]):
        assert bool((rest == 0 if cleared else rest.isnan()).all())


def test_these_sizes_want_different_cuts() -> None:
    assert [device_takes([one for one in sizes if one], N) for sizes in (EVEN, UNEVEN)] == [0, 1]


def test_the_device_decides_as_the_host_would_that_knew_all_sizes() -> None:
    from tests.support.cuts_proof import check_either, ends_of

    for faster, sizes in enumerate((EVEN, UNEVEN)):
        check_either(ends_of(sizes), N, faster, device="cuda")
        check_either(ends_of(sizes, 5), N, faster, leading=True, clear=True, device="cuda")


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("leading", [None, 5])
def test_either_cut_is_right_and_has_the_same_bits(
    leading: int | None, turned: bool, biased: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    import tilewright

    groups = len(EVEN)
    w = random(groups, *((N, K) if turned else (K, N)), dtype="bfloat16")
    w = w.transpose(1, 2) if turned else w
    bias = random(groups, N, dtype="bfloat16") if biased else None
    for sizes in (EVEN, UNEVEN):
        x, ends = random(ROWS, K, dtype="bfloat16"), offsets_of(sizes, leading=leading)
        found = []
        for cut in (EITHER, 0, 1):
            asked(monkeypatch, cut)
            out = torch.full((ROWS, N), NAN, device="cuda", dtype=x.dtype)
            tilewright.ragged_matmul(x, w, ends, bias=bias, out=out)
            found.append(out)
        assert_right(found[0], x, w, sizes, leading=leading or 0, bias=bias)
        asked(monkeypatch)
        own = tilewright.ragged_matmul(x, w, ends, bias=bias)
        assert_right(own, x, w, sizes, leading=leading or 0, bias=bias, cleared=True)
        assert all(torch.equal(found[0].view(torch.int16), one.view(torch.int16)) for one in found)
    tilewright.synchronize()


def test_a_captured_product_takes_the_other_cut_when_its_offsets_want_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import torch

    import tilewright

    asked(monkeypatch)
    x, w, out = operands("float16")
    ends = offsets_of(EVEN)
    tilewright.ragged_matmul(x, w, ends, out=out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        tilewright.ragged_matmul(x, w, ends, out=out)
    for sizes in (EVEN, UNEVEN, [0] * len(EVEN), EVEN, UNEVEN):
        ends.copy_(offsets_of(sizes))
        out.fill_(NAN)
        graph.replay()
        assert_right(out, x, w, sizes)
    tilewright.synchronize()


def test_what_is_launched_again_and_again_follows_its_offsets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import torch

    import tilewright
    from tilewright.backends.cuda.ragged import engine

    asked(monkeypatch)
    x, w, out = operands("bfloat16")
    ends = offsets_of(EVEN)
    launch = engine.standing_rows(x, w, ends, out, "ieee")
    for sizes in (EVEN, UNEVEN, EVEN):
        ends.copy_(offsets_of(sizes))
        out.fill_(NAN)
        launch(torch.cuda.current_stream().cuda_stream)
        assert_right(out, x, w, sizes, cleared=True)
    tilewright.synchronize()


def test_groups_after_a_wrong_one_are_left_out_and_it_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import tilewright
    from tilewright.errors import ShapeError

    asked(monkeypatch)
    x, w, out = operands("bfloat16")
    for sizes in (EVEN, UNEVEN):
        ends = offsets_of(sizes)
        ends[6] = -1
        out.fill_(NAN)
        tilewright.ragged_matmul(x, w, ends, out=out)
        with pytest.raises(ShapeError, match=r"group 6\]"):
            tilewright.synchronize()
        assert_right(out, x, w, sizes[:6])
