"""The cases of bench/gpu.py: what is multiplied, how it lies on the GPU, and what is asked for.

Irregular batches draw m, n and k uniformly; contiguous rows of such sizes are no multiples of 16
bytes ("unaligned"), unless every stride is rounded up to 8 elements ("aligned"). Skewed ones are
small or hold their work in few problems; two thirds of what they once took is asked. A mixture of
experts has as many rows an expert as a fixed draw of a multinomial gives, all of one x [tokens, k].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright import suites


@dataclass(frozen=True)
class Case:
    """One line of the table. `must` and `aim` are milliseconds, None where none is asked."""

    name: str
    dtype: str
    must: float | None = None
    aim: float | None = None
    sizes: tuple[tuple[int, int, int], ...] = ()
    aligned: bool = False
    precision: str | None = None
    experts: int = 0


@dataclass(frozen=True)
class Operands:
    """A case on the GPU: lists of matrices, and for experts the one x, weights and row ends."""

    a: list[Any]
    b: list[Any]
    c: list[Any]
    x: Any = None
    w: Any = None
    ends: Any = None

    @property
    def flops(self) -> float:
        """Multiplications and additions of the useful work."""
        return float(
            sum(
                2 * x.shape[0] * x.shape[1] * y.shape[1]
                for x, y in zip(self.a, self.b, strict=True)
            )
        )


def uniform(low: int, high: int, count: int) -> tuple[tuple[int, int, int], ...]:
    """Sizes drawn uniformly from low to high, both included; the same in every run."""
    draw = np.random.default_rng(0).integers(low, high + 1, (count, 3))
    return tuple(tuple(row) for row in draw.tolist())


def experts(count: int, k: int, n: int, tokens: int) -> tuple[tuple[int, int, int], ...]:
    """Rows an expert when every token picks one at random."""
    rows = np.random.default_rng(0).multinomial(tokens, np.full(count, 1 / count))
    return tuple((int(m), n, k) for m in rows)


def skewed(name: str) -> tuple[tuple[int, int, int], ...]:
    """Sizes that are small, or few of which hold nearly all work; the same in every run."""
    random = np.random.default_rng(0)
    if name == "2000 by a power law":
        drawn = np.minimum(random.zipf(1.4, (2000, 3)), 400)
    elif name == "300 x 700 x 5000 among 800 of 4..48":
        drawn = np.insert(random.integers(4, 49, (800, 3)), 400, (300, 700, 5000), axis=0)
    elif name == "300 of 1..2000 x 1..24 x 8..128":
        limits = ((1, 2001), (1, 25), (8, 129))
        drawn = np.stack([random.integers(*limit, 300) for limit in limits], axis=1)
    elif name == "500 of 64 x 64 x 1000..20000":
        drawn = np.full((500, 3), 64)
        drawn[:, 2] = random.integers(1000, 20_001, 500)
    else:
        drawn = np.exp(random.uniform(np.log(2), np.log(901), (800, 3))).astype(int)
    return tuple(tuple(row) for row in drawn.tolist())


def _skewed() -> list[Case]:
    """Each in float32 and bfloat16; sizes even in their logarithms in float64 as well."""
    asked = {
        "2000 by a power law": (0.055, 0.039),
        "300 x 700 x 5000 among 800 of 4..48": (0.076, 0.045),
        "300 of 1..2000 x 1..24 x 8..128": (0.076, 0.048),
        "500 of 64 x 64 x 1000..20000": (0.78, 0.42),
        "800 of 2..900, even in logarithms": (0.156, None),
    }
    found = [
        Case(f"skewed: {name}", dtype, must, None, skewed(name))
        for name, each in asked.items()
        for dtype, must in zip(("float32", "bfloat16"), each, strict=True)
    ]
    return [*found, Case(found[-1].name, "float64", 0.157, None, found[-1].sizes)]


def _milliseconds(flops: float, teraflops: float) -> float:
    return flops / teraflops / 1e9


def _moe(name: str, count: int, k: int, n: int, tokens: int, must: float, aim: float) -> Case:
    """`must` and `aim` in TFLOP/s where they are more than 10, else in ms."""
    flops = 2.0 * tokens * k * n
    must, aim = (value if value < 10 else _milliseconds(flops, value) for value in (must, aim))
    sizes = experts(count, k, n, tokens)
    return Case(name, "bfloat16", must, aim, sizes, aligned=True, experts=count)


CASES = (
    _moe("moe-64: 16384 tokens, 2048 x 2816", 64, 2048, 2816, 16384, 575, 650),
    _moe("moe-8: 8192 tokens, 4096 x 14336", 8, 4096, 14336, 8192, 735, 760),
    _moe("moe-256: 16384 tokens, 7168 x 2048", 256, 7168, 2048, 16384, 1.95, 1.87),
    Case("dense 8192", "bfloat16", sizes=((8192, 8192, 8192),), aligned=True),
    Case("200 of 256..2048, aligned", "bfloat16", 1.2, 1.05, uniform(256, 2048, 200), True),
    Case("200 of 256..2048", "bfloat16", 1.75, 1.4, uniform(256, 2048, 200)),
    Case("1000 of 1..512", "bfloat16", 0.36, 0.25, uniform(1, 512, 1000)),
    Case("1000 of 1..256", "float16", 0.11, 0.07, uniform(1, 256, 1000)),
    Case("1000 of 1..64", "float32", 0.033, 0.016, uniform(1, 64, 1000)),
    Case("1000 of 1..256", "float32", 0.30, 0.2, uniform(1, 256, 1000)),
    Case("1000 of 1..512", "float32", 1.5, 1.2, uniform(1, 512, 1000)),
    Case("1000 of 1..32", "float32", None, None, uniform(1, 32, 1000)),
    Case("1000 of 1..256", "float64", None, None, uniform(1, 256, 1000)),
    Case("1000 of 1..256", "float32", None, None, uniform(1, 256, 1000), precision="tf32"),
    Case("dense 4096", "float32", 1.1, 0.62, ((4096,) * 3,), precision="fp32x"),
    Case("1000 of 1..256", "float32", 0.24, 0.18, uniform(1, 256, 1000), precision="fp32x"),
    Case("1000 of 1..512", "float32", 0.95, 0.67, uniform(1, 512, 1000), precision="fp32x"),
    *_skewed(),
)


def suite_cases() -> list[Case]:
    """Every batch of tilewright.suites: experts in bfloat16, all else in float32.

    Those that need SciPy are left out where it is not installed.
    """
    found = []
    for name in suites.names():
        try:
            suite = suites.load(name)
        except ModuleNotFoundError:
            continue
        columns = (suite.m.tolist(), suite.n.tolist(), suite.k.tolist())
        dtype = "bfloat16" if name.startswith("moe") else "float32"
        found.append(Case(f"suite {name}", dtype, sizes=tuple(zip(*columns, strict=True))))
    return found


def operands(case: Case) -> Operands:
    """The matrices of a case, normally distributed; results filled with NaN."""
    import torch

    dtype = getattr(torch, case.dtype)
    m, n, k = np.array(case.sizes).T
    if case.experts:
        return _experts(case, dtype, m)
    pad = 8 if case.aligned else 1
    c = _matrices(m, n, pad, dtype)
    for z in c:
        z.fill_(float("nan"))
    return Operands(_matrices(m, k, pad, dtype), _matrices(k, n, pad, dtype), c)


def _experts(case: Case, dtype: Any, rows: Any) -> Operands:
    import torch

    _, n, k = case.sizes[0]
    x = torch.randn(int(rows.sum()), k, device="cuda", dtype=dtype)
    w = torch.randn(case.experts, k, n, device="cuda", dtype=dtype)
    out = torch.full((len(x), n), float("nan"), device="cuda", dtype=dtype)
    ends = torch.tensor(np.cumsum(rows), dtype=torch.int32, device="cuda")
    counts = rows.tolist()
    return Operands(list(x.split(counts)), list(w.unbind()), list(out.split(counts)), x, w, ends)


def _matrices(rows: Any, cols: Any, pad: int, dtype: Any) -> list[Any]:
    """Matrices one behind another in one allocation, each at a multiple of 256 bytes."""
    import torch

    steps = -(-cols // pad) * pad
    item = torch.empty(0, dtype=dtype).element_size()
    room = 256 // item
    ends = np.cumsum(-(-rows * steps // room) * room)
    starts = np.concatenate(([0], ends[:-1])).tolist()
    flat = torch.randn(int(ends[-1]), device="cuda", dtype=dtype)
    shapes: Sequence[Any] = list(
        zip(starts, rows.tolist(), cols.tolist(), steps.tolist(), strict=True)
    )
    return [flat.as_strided((m, n), (step, 1), start) for start, m, n, step in shapes]
