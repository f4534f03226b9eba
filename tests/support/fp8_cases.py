"""Cases of 8-bit products and of quantising, for the host, Triton's interpreter and GPUs.

The truth is float64's of what the operands stand for; operands are poisoned where no group reads.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
LARGEST = {E4M3: 448.0, E5M2: 57344.0}
# Rows of the groups, columns, k; what scales stand for; types of both operands; of the result.
ROWS: list[tuple[list[int], int, int, str, Any, Any, Any]] = [
    ([5, 0, 70, 1], 150, 200, "row", E4M3, E4M3, torch.float32),
    ([5, 0, 70, 1], 150, 200, "blocks", E4M3, E5M2, torch.bfloat16),
    ([3], 8, 16, "blocks", E5M2, E4M3, torch.float32),
    ([0, 0], 40, 128, "row", E5M2, E5M2, torch.bfloat16),
    ([130, 2], 129, 130, "blocks", E4M3, E4M3, torch.float32),
]
LARGE: list[tuple[list[int], int, int, str, Any, Any, Any]] = [
    ([8191], 384, 512, "blocks", E4M3, E4M3, torch.bfloat16),
    ([8191], 384, 512, "row", E4M3, E5M2, torch.float32),
    ([0, 1, 63, 64, 65, 0, 127, 128, 129, 191, 192, 193, 255, 256, 257, 700], 264, 1040, "blocks",
     E4M3, E4M3, torch.float32),
    ([0, 1, 63, 64, 65, 0, 127, 128, 129, 191, 192, 193, 255, 256, 257, 700], 264, 1040, "row",
     E5M2, E4M3, torch.bfloat16),
    ([3] * 300, 128, 16, "blocks", E5M2, E5M2, torch.bfloat16),
    ([300, 20], 7, 4096, "blocks", E4M3, E4M3, torch.float32),
    ([2048, 1], 1000, 7168, "blocks", E4M3, E4M3, torch.float32),
]  # fmt: skip
# Rows of the groups, m, n, scales of B.
DEPTHS = [([5, 0, 130, 256], 41, 150, "1x128"), ([300], 130, 33, "128x128")]
LARGE_DEPTHS = [
    ([128, 0, 1000, 77, 1], 520, 390, "1x128"),
    ([2048, 300], 256, 1027, "128x128"),
    ([2048, 300], 300, 1024, "1x128"),
]


def decoded(values: Tensor, scale: Tensor) -> Tensor:
    """The float64 that values stand for, by shapes alone."""
    spread = scale
    for at, (size, count) in enumerate(zip(values.shape, scale.shape, strict=True)):
        if count not in (1, size) or (count == 1 and size > 1):
            spread = spread.repeat_interleave(min(128, size) if count > 1 else size, at)
            spread = spread.narrow(at, 0, size)
    return values.double() * spread.double()


def drawn(*shape: int, device: str) -> Tensor:
    """Numbers whose size differs from row to row and from block to block."""
    rows = torch.randn(*shape[:-1], 1).exp() * torch.randn(*shape)
    return (rows * (1 + torch.arange(shape[-1]) // 100)).to(device)


def assert_near(found: Tensor, left: Tensor, right: Tensor) -> None:
    """Whether it is left @ right but for sums of 128 of k with 13 bits, and one rounding.

    A tensor core cuts each 8-bit product off below 2^-13 of the largest it adds to: what it loses
    is bounded by the number of products times that, and far less on the whole.
    """
    exact, size = left @ right, left.abs() @ right.abs()
    rounding = 2.0**-8 if found.dtype == torch.bfloat16 else 2.0**-23
    limit = rounding * exact.abs() + 2.0**-8 * size + 1e-6
    miss = (found.double() - exact).abs()
    assert bool((miss <= limit).all()), f"{(miss / limit).max()} times what is allowed"
    whole, room = float(miss.norm()), float(exact.norm())
    allowed = 0.5 * rounding + 2.0**-10
    assert whole <= allowed * room + 1e-6, f"relative error {whole / room}, allowed {allowed}"


def check_rows(case: tuple[Any, ...], device: str, run: Any, *, leading: bool = False) -> None:
    """`run(x, w, offsets, scale_a, scale_b, out)` writes all rows of groups, and no other."""
    import tilewright

    counts, n, k, kind, of_x, of_w, dtype = case
    first = 3 if leading else 0
    ends = [first + sum(counts[: at + 1]) for at in range(len(counts))]
    kinds = ("row", "row") if kind == "row" else ("1x128", "128x128")
    x = drawn(ends[-1] + 5, k, device=device)
    x, scale_a = tilewright.quantise_fp8(x, scale=kinds[0], dtype=of_x)
    w = drawn(len(counts), k, n, device=device)
    w, scale_b = tilewright.quantise_fp8(w, scale=kinds[1], dtype=of_w, along=1)
    x[:first], x[ends[-1] :] = float("nan"), float("nan")
    given = [first, *ends] if leading else ends
    out = torch.full((x.shape[0], n), float("nan"), dtype=dtype, device=device)
    run(x, w, torch.tensor(given, device=device, dtype=torch.int32), scale_a, scale_b, out)
    assert bool(out[:first].isnan().all() and out[ends[-1] :].isnan().all())
    for group, (begin, end) in enumerate(pairwise([first, *ends])):
        left, right = decoded(x[begin:end], scale_a[begin:end]), decoded(w[group], scale_b[group])
        assert_near(out[begin:end], left, right)


def check_depths(case: tuple[Any, ...], device: str, run: Any) -> None:
    """`run(x, y, offsets, scale_a, scale_b, out)` writes the product of each group."""
    import tilewright

    counts, m, n, kind = case
    ends = torch.tensor(counts, device=device).cumsum(0)
    x, y = drawn(sum(counts) + 5, m, device=device), drawn(sum(counts) + 5, n, device=device)
    x[ends[-1] :], y[ends[-1] :] = float("nan"), float("nan")
    xs = tilewright.quantise_fp8(x, along=0, offsets=ends)
    ys = tilewright.quantise_fp8(y, along=0, scale=kind, offsets=ends)
    padded = [-(-count // 128) * 128 for count in counts]
    assert xs[2].tolist() == ys[2].tolist() == torch.tensor(padded).cumsum(0).tolist()
    left, right = decoded(xs[0], xs[1]), decoded(ys[0], ys[1])
    out = torch.full((len(counts), m, n), float("nan"), device=device)
    run(xs[0].t(), ys[0], xs[2], xs[1].t(), ys[1], out)
    place = source = 0
    for group, (count, room) in enumerate(zip(counts, padded, strict=True)):
        rows = left[place : place + count]
        torch.testing.assert_close(  # half a step of the type, of the largest in 128
            rows,
            x[source : source + count].double(),
            rtol=2.0**-4,
            atol=float(x[source : source + count].abs().max()) / 448 if count else 0,
        )
        assert not bool(left[place + count : place + room].any())
        assert_near(out[group], left[place : place + room].t(), right[place : place + room])
        place, source = place + room, source + count


# Rows of the groups, columns, k, rows past the last; of int8, whose results are equal bit for bit.
WHOLE: list[tuple[list[int], int, int, int]] = [
    ([5, 0, 70, 1], 150, 200, 2),
    ([3], 8, 16, 0),
    ([130, 2], 129, 130, 3),
    ([64], 33, 2100, 0),
]
LARGE_WHOLE = [
    ([0, 1, 63, 64, 65, 127, 128, 129, 191, 192, 193, 255, 256, 257, 700], 264, 1040, 5),
    ([3] * 300, 128, 16, 0),
    ([2048, 1], 1000, 7168, 1),
    ([300], 130, 140_000, 0),
]


def drawn_bytes(*shape: int, device: str) -> Tensor:
    """int8 of any value, the last dimension but one contiguous where there are three."""
    found = torch.randint(-128, 128, shape, dtype=torch.int8)
    return (found if len(shape) < 3 else found.mT.contiguous().mT).to(device)


def check_whole(case: tuple[Any, ...], device: str, run: Any, *, leading: bool = False) -> None:
    """`run(x, w, offsets, scale_a, scale_b, dtype, out)` gives all rows of groups; or None."""
    counts, n, k, rest = case
    first = 3 if leading else 0
    ends = [first + sum(counts[: at + 1]) for at in range(len(counts))]
    x = drawn_bytes(ends[-1] + rest, k, device=device)
    w = drawn_bytes(len(counts), k, n, device=device)
    offsets = torch.tensor([first, *ends] if leading else ends, device=device, dtype=torch.int32)
    of_a = torch.rand(len(x), 1, device=device) + 0.5
    of_b = torch.rand(len(counts), 1, n, device=device) + 0.5
    for dtype in (torch.int32, torch.float32, torch.bfloat16):
        scales = (None, None) if dtype == torch.int32 else (of_a, of_b)
        poison = 77 if dtype == torch.int32 else float("nan")
        out = torch.full((len(x), n), poison, dtype=dtype, device=device)
        untouched = out[: ends[-1] - sum(counts)].clone(), out[ends[-1] :].clone()
        found = run(x, w, offsets, *scales, dtype, out)
        if found is None:
            continue
        for group, (begin, end) in enumerate(pairwise([first, *ends])):
            exact = x[begin:end].cpu().double() @ w[group].cpu().double()
            whole = exact.long().to(torch.int32).to(device)
            wanted = whole
            if dtype != torch.int32:
                wanted = (whole.float() * (of_a[begin:end] * of_b[group])).to(dtype)
            assert torch.equal(found[begin:end], wanted), (case, dtype, group)
        if found is out:
            parts = found[:first], found[ends[-1] :]
            for part, kept in zip(parts, untouched, strict=True):
                torch.testing.assert_close(part, kept, rtol=0, atol=0, equal_nan=True)
        else:
            assert not bool(found[:first].any())
            assert not bool(found[ends[-1] :].any())


def ties() -> Tensor:
    """Numbers half way between whole ones once their largest is 127, and beside them."""
    halves = torch.arange(-127, 128).float() + 0.5
    near = torch.nextafter(halves, torch.zeros(())), torch.nextafter(halves, 2 * halves)
    rows = torch.cat((halves, *near, torch.tensor([127.0])))[None].clamp(-127, 127)
    return torch.cat((rows, rows * 0.37, rows * 2.0**-130, rows * 1e35))


def odd_values() -> Tensor:
    """Every finite 8-bit float and what lies between two, zeros, tiny and huge, NaN, infinities."""
    every = torch.arange(256, dtype=torch.uint8).view(E4M3).float()
    every = every[every.isfinite()].sort().values
    between = (every[1:] + every[:-1]) / 2
    rows = torch.zeros(7, 640)
    both = torch.cat((every, between))
    rows[0, : len(both)] = both
    rows[1, : len(both)] = both * 2.0**-140
    rows[2, : len(both)] = both * 2.0**118
    rows[3, :4] = torch.tensor([float("nan"), float("inf"), -float("inf"), 2.0])
    rows[5] = torch.randn(640)
    rows[6, 130] = -3.0
    return rows


def same_bits(found: Tensor, wanted: Tensor) -> bool:
    """NaN counts as NaN whatever its bits."""
    equal = found.view(torch.uint8) == wanted.view(torch.uint8)
    return bool((equal | (found.float().isnan() & wanted.float().isnan())).all())
