"""Runs the kernels of 8-bit floats in Triton's interpreter, on the host.

TRITON_INTERPRET=1 python -m tests.support.interpreter fp8_proof
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.support import fp8_cases as cases
from tilewright import quantise_fp8, quantise_int8
from tilewright.backends.cuda.fp8 import engine, quantise
from tilewright.backends.cuda.fp8.work import Fp8Work, Operands
from tilewright.backends.cuda.machine import faults
from tilewright.backends.cuda.machine.triton_launch import INTERPRETED
from tilewright.errors import ShapeError
from tilewright.torch_ops import fp8, fp8_call, fp8_constants


def run(x: Any, w: Any, offsets: Any, scale_a: Any, scale_b: Any, out: Any) -> None:
    kind, scale_a, scale_b = fp8_call._scales(x, w, scale_a, scale_b)
    engine.run(Fp8Work(Operands(x, w, offsets, scale_a, scale_b, out), kind, w.dim() == 2))


def run_whole(
    x: Any, w: Any, offsets: Any, scale_a: Any, scale_b: Any, dtype: Any, out: Any
) -> Any:
    one = fp8_constants.one(x)
    scale_a, scale_b = (one, one) if scale_a is None else (scale_a, scale_b)
    if dtype == torch.bfloat16:
        return None  # the interpreter cuts it off, and rounds none
    run(x, w, offsets, scale_a, scale_b, out)
    return out


def check_quantised(x: Any, scale: str, dtype: Any, ends: Any = None) -> None:
    """The same bits as on the host."""
    along = -1 if ends is None else 0
    if dtype == torch.int8:
        wanted = quantise_int8(x)
    else:
        wanted = quantise_fp8(x, scale=scale, dtype=dtype, along=along, offsets=ends)
    seen = x[None] if ends is None else x.t()[None]
    values, scales, padded = fp8._room(seen, scale, dtype, ends)
    shown = scales[..., : seen.shape[1]].transpose(1, 2) if scale == "1x128" else scales
    quantise.write(seen, values, shown, scale, None if ends is None else (ends, padded))
    values, shown = values[0, :, : wanted[0].shape[along]], shown[0]
    if ends is not None:
        values, shown = values.t(), shown.t()
        assert padded.tolist() == wanted[2].tolist()
    torch.testing.assert_close(
        shown.reshape(wanted[1].shape), wanted[1], rtol=0, atol=0, equal_nan=True
    )
    assert cases.same_bits(values, wanted[0])


def main() -> None:
    torch.manual_seed(0)
    for number, case in enumerate(cases.ROWS):
        case = (*case[:-1], torch.float32)  # the interpreter cuts bfloat16 off, and rounds none
        cases.check_rows(case, "cpu", run, leading=number % 2 == 1)
    print("rows: right")
    for case in cases.DEPTHS:
        cases.check_depths(case, "cpu", run)
    print("depths: right")
    for dtype in (cases.E4M3, cases.E5M2):
        for scale in ("row", "1x128", "128x128"):
            check_quantised(cases.odd_values(), scale, dtype)
        check_quantised(torch.randn(70, 33).half(), "1x128", dtype, torch.tensor([3, 3, 60]))
    check_quantised(cases.odd_values(), "row", torch.int8)
    check_quantised(cases.ties(), "row", torch.int8)
    print("quantised: the same bits")
    for case in cases.WHOLE:
        cases.check_whole((*case[:3], min(case[3], 2)), "cpu", run_whole)
    print("int8: equal")
    x = torch.zeros(4, 256).to(cases.E4M3)
    ends, one = torch.tensor([128, 130]), torch.ones(4, 2)
    out = torch.full((2, 4, 4), float("nan"))
    run(x, x.t(), ends, one, one.t(), out)
    assert not bool(out.any()), "a group that begins elsewhere is empty"
    with pytest.raises(ShapeError, match=r"offsets\[group 1\]"):
        faults.check(INTERPRETED)
    print("wrong offsets: named")


if __name__ == "__main__":
    main()
