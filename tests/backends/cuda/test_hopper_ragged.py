"""Sizes that only the device knows, on Hopper's tensor cores: rows with a bias, and depths.

Outputs are poisoned beforehand, and so is what lies around and between the groups; the truth is
float64's.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from tilewright.backends.cuda.hopper.blocks import HALF, STAGED, WIDE, HopperTile
from tilewright.backends.cuda.machine import driver, nvrtc
from tilewright.backends.cuda.ragged import hopper_cuts, hopper_depths, hopper_rows


def _missing() -> str | None:
    reason = driver.missing()
    if reason is None and nvrtc.architecture(0) != "sm_90a":
        return "no Hopper GPU"
    return reason


pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(_missing() is not None, reason=str(_missing())),
]
ROUNDING = {"bfloat16": 2.0**-8, "float16": 2.0**-11}  # of one result, once, to the type
NAN = float("nan")
# Rows of the groups: none, one, around a step of 64 and a slice of 16, one that outlasts the rest.
COUNTS = [
    [0, 1, 64, 300, 0, 33, 600, 128],
    [63, 64, 65, 15, 16, 17, 1, 0],
    [0, 0, 3000, 5],
    [0, 0],
    [130],
]


def random(*shape: int, dtype: str) -> Any:
    import torch

    return torch.randn(*shape, device="cuda").to(getattr(torch, dtype))


def operand(live: Any, columns: int, stride: int, dtype: str, otherwise: float) -> Any:
    """[rows, columns]: rows that are not `live` hold `otherwise`, and NaN follows each row."""
    whole = random(len(live), stride, dtype=dtype)
    whole[~live] = otherwise
    whole[:, columns:] = NAN
    return whole[:, :columns]


def assert_near(found: Any, left: Any, right: Any, bias: Any = None) -> None:
    """Whether `found` is left @ right + bias but for one rounding and those of fp32 sums."""
    left, right = left.double(), right.double()
    expected, size = left @ right, left.abs() @ right.abs()
    if bias is not None:
        expected, size = expected + bias.double(), size + bias.double().abs()
    rounding = ROUNDING[str(found.dtype).removeprefix("torch.")]
    limit = rounding * expected.abs() + 2.0**-20 * size + 1e-6
    assert bool(((found.double() - expected).abs() <= limit).all())


def table_of_rows(counts: list[int], first: int, height: int) -> Any:
    """Entries of so many rows, of which all of a group take turns."""
    import torch

    ends = np.cumsum([first, *counts]).tolist()
    rows = [
        (group, start, min(start + height, ends[group + 1]), turn | -(-count // height) << 16)
        for group, count in enumerate(counts)
        for turn, start in enumerate(range(ends[group], ends[group + 1], height))
    ]
    assert len(rows) <= hopper_rows.entries(sum(counts), len(counts), height)
    return torch.tensor([(len(rows), 0, 0, 0), *rows], dtype=torch.int32, device="cuda")


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("n", [512, 520, 204])
@pytest.mark.parametrize(
    ("cut", "height"),
    [(hopper_cuts.WHOLE, 256), (hopper_cuts.EVENLY, 160), (hopper_cuts.EVENLY, 112)],
)
def test_rows_of_a_group_meet_its_matrix_and_its_bias(
    cut: hopper_cuts.Cut, height: int, n: int, transposed: bool, biased: bool
) -> None:
    import torch

    dtype, k, counts = "float16" if n == 520 else "bfloat16", 320, COUNTS[0]
    if not transposed and n % 8:
        n += 4
    ends = np.cumsum([5, *counts]).tolist()
    x = random(ends[-1] + 7, k, dtype=dtype)
    x[:5], x[ends[-1] :] = NAN, NAN
    w = random(len(counts), *((n, k) if transposed else (k, n)), dtype=dtype)
    w = w.transpose(1, 2) if transposed else w
    drawn: Any = random(n, len(counts) + 1, dtype=dtype).t()[1:]
    bias = (drawn.contiguous() if transposed else drawn) if biased else None
    out = torch.full((len(x), n), NAN, device="cuda", dtype=x.dtype)
    assert hopper_rows.why_not(x, w, out, bias, driver.device_of(0)) is None
    table = table_of_rows(counts, 5, height)
    hopper_rows.prepared(x, w, out, cut, bias).launch(0, table, w, x, out, bias)
    for group in range(len(counts)):
        part = slice(ends[group], ends[group + 1])
        assert_near(out[part], x[part], w[group], drawn[group] if biased else None)
    assert bool(torch.isnan(out[:5]).all())
    assert bool(torch.isnan(out[ends[-1] :]).all())


SIZES = [(256, 512), (64, 32), (41, 33), (200, 520), (136, 1000), (8, 8), (385, 257)]


@pytest.mark.parametrize("clean", [0, 1])
@pytest.mark.parametrize("shape", [WIDE, STAGED, HALF], ids=lambda shape: shape.name)
@pytest.mark.parametrize(("m", "n"), SIZES)
def test_depths_of_a_group_are_its_own(m: int, n: int, shape: HopperTile, clean: int) -> None:
    """Every second group holds NaN and infinity; the products of the others do not."""
    import torch

    for turn, counts in enumerate(COUNTS):
        dtype = "bfloat16" if turn % 2 else "float16"
        ends = np.cumsum([5, *counts]).tolist()
        parts = [slice(*pair) for pair in itertools.pairwise(ends)]
        live = torch.zeros(ends[-1] + 7, dtype=torch.bool, device="cuda")
        for part in parts[clean::2]:
            live[part] = True
        x = operand(live, m, -(-m // 8) * 8 + 8, dtype, NAN)
        y = operand(live, n, -(-n // 8) * 8, dtype, float("inf"))
        entries = [(group, part.start, part.stop, 0) for group, part in enumerate(parts)]
        table = torch.tensor([(0, 0, 0, 0), *entries], dtype=torch.int32, device="cuda")
        guarded = torch.full((len(counts) + 2, m, n), NAN, device="cuda", dtype=x.dtype)
        out = guarded[1:-1]
        assert hopper_depths.why_not(x.t(), y, out, driver.device_of(0)) is None
        hopper_depths.prepared(x.t(), y, out, shape).launch(0, table, x.t(), y, out)
        for group in range(clean, len(counts), 2):
            assert_near(out[group], x[parts[group]].t(), y[parts[group]])
        assert bool(guarded[[0, -1]].isnan().all())


def offsets_of(counts: list[int], *, leading: int | None = None) -> Any:
    import torch

    first = [] if leading is None else [leading]
    ends = np.cumsum([leading or 0, *counts])[1:].tolist()
    return torch.tensor([*first, *ends], dtype=torch.int32, device="cuda")


@pytest.mark.parametrize("leading", [None, 3])
@pytest.mark.parametrize("counts", COUNTS, ids=str)
def test_a_layer_and_its_gradients_are_those_of_float64(
    counts: list[int], leading: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from tilewright.backends.cuda.ragged.triton import TritonRows
    from tilewright.pytorch import GroupedLinear

    def refused(*given: Any) -> None:
        raise AssertionError("not on the Hopper kernel")

    monkeypatch.setattr(TritonRows, "bind", refused)
    torch.manual_seed(0)
    begin, k, n = leading or 0, 192, 328
    layer: Any = GroupedLinear(len(counts), k, n, device="cuda", dtype=torch.bfloat16)
    x = random(begin + sum(counts) + 9, k, dtype="bfloat16").requires_grad_()
    pull = random(len(x), n, dtype="bfloat16")
    layer(x, offsets_of(counts, leading=leading)).backward(pull)
    for group, count in enumerate(counts):
        part = slice(begin, begin := begin + count)
        assert_near(x.grad[part], pull[part], layer.weight[group].t())
        assert_near(layer.weight.grad[group], x[part].t(), pull[part])
        assert_near(
            layer.bias.grad[group][None], torch.ones_like(pull[part][:, :1]).t(), pull[part]
        )
    assert bool((x.grad[begin:] == 0).all())


def test_wrong_groups_are_empty_and_named() -> None:
    import torch

    import tilewright
    from tilewright.errors import ShapeError

    x, y = random(100, 64, dtype="float16"), random(100, 72, dtype="float16")
    for ends, wrong in (([10, 5, 60], 1), ([-3, 0, 50], 0), ([20, 40, 101], 2)):
        out = torch.full((3, 64, 72), NAN, device="cuda", dtype=x.dtype)
        given = torch.tensor(ends, device="cuda")
        tilewright.ragged_matmul(x.t(), y, given, out=out)
        with pytest.raises(ShapeError, match="group"):
            tilewright.synchronize()
        assert bool((out[wrong] == 0).all())


def test_a_captured_training_step_follows_offsets_that_change() -> None:
    import torch

    from tilewright.pytorch import GroupedLinear

    layer = GroupedLinear(3, 128, 256, device="cuda", dtype=torch.bfloat16)
    x, pull = random(500, 128, dtype="bfloat16"), random(500, 256, dtype="bfloat16")
    ends = offsets_of([100, 0, 400])

    def step() -> None:
        layer.zero_grad(set_to_none=False)
        layer(x, ends).backward(pull)

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        step()
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    for counts in ([100, 0, 400], [1, 63, 65], [0, 0, 500]):
        ends.copy_(offsets_of(counts))
        graph.replay()
        begin = 0
        for group, count in enumerate(counts):
            part = slice(begin, begin := begin + count)
            assert_near(layer.weight.grad[group], x[part].t(), pull[part])


def test_the_same_bits_every_time() -> None:
    import torch

    import tilewright

    x, y = random(5000, 256, dtype="bfloat16"), random(5000, 512, dtype="bfloat16")
    ends = offsets_of([1000, 1, 2500, 0, 77, 1422])
    first = tilewright.ragged_matmul(x.t(), y, ends)
    for _ in range(3):
        again = tilewright.ragged_matmul(x.t(), y, ends)
        assert torch.equal(again.view(torch.int16), first.view(torch.int16))


def test_a_compiled_layer_has_the_gradients_of_the_layer() -> None:
    import torch

    from tilewright.pytorch import GroupedLinear

    layer: Any = GroupedLinear(3, 64, 96, device="cuda", dtype=torch.bfloat16)
    x, pull = random(200, 64, dtype="bfloat16"), random(200, 96, dtype="bfloat16")
    ends = offsets_of([70, 0, 130])
    found = []
    for run in (layer, torch.compile(layer, fullgraph=True, backend="aot_eager")):
        layer.zero_grad()
        run(x, ends).backward(pull)
        found.append((layer.weight.grad, layer.bias.grad))
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


def test_autocast_runs_on_the_same_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from tilewright.backends.cuda.ragged.triton import TritonRows
    from tilewright.pytorch import GroupedLinear

    layer: Any = GroupedLinear(2, 64, 96, device="cuda")
    x, ends = torch.randn(100, 64, device="cuda"), offsets_of([30, 70])
    monkeypatch.setattr(TritonRows, "bind", None)
    with torch.autocast("cuda", torch.bfloat16):
        result = layer(x, ends)
    result.sum().backward()
    assert result.dtype is torch.bfloat16
    assert layer.weight.grad.dtype is torch.float32
    assert_near(
        result[:30], x[:30].bfloat16(), layer.weight[0].bfloat16(), layer.bias[0].bfloat16()
    )
