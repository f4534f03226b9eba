"""Batches of the Hopper engines on the GPU, and their results against float64."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.support.hopper_work import Memory
from tilewright.backends.cuda.hopper import engine, records
from tilewright.backends.cuda.hopper.bind import bound
from tilewright.backends.cuda.hopper.blocks import SHAPES, HopperTile
from tilewright.backends.cuda.hopper.orient import orient
from tilewright.backends.cuda.machine import driver, nvrtc

# Of one result: rounding once to the type, relative to the size of its terms.
ROUNDING = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24}


def why_not_hopper() -> str | None:
    """The reason to skip, or None where there is a Hopper GPU."""
    reason = driver.missing()
    if reason is None and nvrtc.architecture(0) != "sm_90a":
        return "no Hopper GPU"
    return reason


class Arrays:
    """The matrices of a batch in one tensor on the GPU; C is NaN but where it is read."""

    def __init__(self, memory: Memory, dtype: str = "bfloat16", beta: float = 0.0) -> None:
        import torch

        self.memory = memory
        kind = getattr(torch, dtype)
        self.flat = torch.randn(memory.elements, device="cuda").to(kind)
        self.outside = torch.ones(memory.elements, dtype=torch.bool, device="cuda")
        for problem in range(len(memory.mnk)):
            for which in range(3):
                self.view(which, problem, self.outside).fill_(False)
            if not beta:
                self.view(2, problem).fill_(float("nan"))
        self.flat[self.outside] = float("nan")
        self.before = self.flat.clone()

    def view(self, which: int, problem: int, flat: Any = None) -> Any:
        import torch

        m, n, k = self.memory.mnk[problem]
        shape = ((m, k), (k, n), (m, n))[which]
        strides = tuple(int(s[problem]) for s in self.memory.strides[which])
        start = int(self.memory.starts[which][problem])
        return torch.as_strided(self.flat if flat is None else flat, shape, strides, start)


def run(
    arrays: Arrays,
    dtype: str = "bfloat16",
    shapes: tuple[HopperTile, ...] = SHAPES,
    turned: bool | None = None,
    **fields: Any,
) -> None:
    """Multiply, and compare every problem to float64; `turned` or not, by the first of `shapes`."""
    import torch

    memory = arrays.memory
    work = memory.work(arrays.flat.data_ptr(), dtype, keep=(arrays.flat,), **fields)
    plan = engine.plan(work, shapes)
    if turned is not None:
        batch, every = orient(work, turned=turned), np.arange(len(memory.mnk))
        plan = (engine.bucket_of(batch, every, shapes[0], work.order, records.AS_MEASURED),)
    bound(work, plan)()
    count = len(memory.mnk)
    alpha, beta = (
        fields.get(name, np.full(count, v)) for name, v in (("alpha", 1.0), ("beta", 0.0))
    )
    for problem, (m, n, _) in enumerate(memory.mnk):
        a, b = (arrays.view(which, problem, arrays.before).double() for which in (0, 1))
        expected, size = alpha[problem] * (a @ b), abs(alpha[problem]) * (a.abs() @ b.abs())
        if beta[problem]:
            c = beta[problem] * arrays.view(2, problem, arrays.before).double()
            expected, size = expected + c, size + c.abs()
        if fields.get("bias") is not None:
            bias = arrays.bias[problem].double()  # type: ignore[attr-defined]
            expected, size = expected + bias, size + bias.abs()
        if fields.get("activation") == "relu":
            expected = torch.relu(expected)
        if fields.get("activation") == "gelu":
            expected = torch.nn.functional.gelu(expected)
        error = (arrays.view(2, problem).double() - expected).abs()
        limit = ROUNDING[dtype] * expected.abs() + 2.0**-20 * size + 1e-6
        assert bool((error <= limit).all()), (problem, memory.mnk[problem], m, n)
    assert bool(torch.isnan(arrays.flat[arrays.outside]).all())
