"""Plants races in kernels of Triton's interpreter: each must be found, and what is none not.

TRITON_INTERPRET=1 python -m tests.support.interpreter races_proof
"""

from typing import Any

import torch
import triton
import triton.language as tl

from tests.support.races import RaceError


@triton.jit
def spread(source: Any, out: Any, step: tl.constexpr, width: tl.constexpr) -> None:
    """Programs write so many elements each, step apart."""
    at = tl.program_id(0) * step + tl.arange(0, width)
    tl.store(out + at, tl.load(source + at))


@triton.jit
def pass_on(out: Any, count: Any) -> None:
    """Each program reads what the one before has written."""
    at = tl.program_id(0)
    tl.store(out + at + 1, tl.load(out + at, mask=at < count, other=0) + 1)


@triton.jit
def counted(total: Any, out: Any, peek: tl.constexpr) -> None:
    """Programs add to one number; it may be looked at meanwhile."""
    tl.atomic_add(total, 1)
    if peek:
        tl.store(out + tl.program_id(0), tl.load(total))


def races(kernel: Any, *arguments: Any, **constants: Any) -> bool:
    """Whether a launch of four programs is said to have a race."""
    try:
        kernel[(4,)](*arguments, **constants)
    except RaceError:
        return True
    return False


def main() -> None:
    source, out = torch.arange(64.0), torch.zeros(64)
    total, seen = torch.zeros(1, dtype=torch.int32), torch.zeros(8, dtype=torch.int32)
    assert not races(spread, source, out, step=8, width=8)
    assert races(spread, source, out, step=7, width=8)
    assert races(spread, source, source, step=7, width=8)
    assert not races(spread, source, source, step=8, width=8)
    assert races(pass_on, out, 8)
    assert not races(counted, total, seen, peek=False)
    assert races(counted, total, seen, peek=True)
    print("races: found")
