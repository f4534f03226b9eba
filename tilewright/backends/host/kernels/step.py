"""The record of a step, and how machine code comes to one by its address.

Steps are told of by address alone, so that what runs them is compiled without knowing what they do:
a program compiles the few kinds of tasks that it has. When one function called all twelve kinds,
the first program on an empty cache took 29 s to compile.
"""

from __future__ import annotations

from llvmlite import ir
from numba import carray, types

from tilewright.backends.host.kernels.atomics import pointer
from tilewright.backends.host.kernels.emitted import emitted
from tilewright.backends.host.kernels.helpers import helper
from tilewright.backends.host.kernels.step_table import STEP

_I64 = ir.IntType(64)


@helper
def step_at(address):
    """The record there."""
    return carray(pointer(address), (1,), STEP)[0]


@emitted(types.void, *[types.intp] * 4)
def call(builder, code, step, task, scratch):
    """What lies at the address `code`, given a step's address, a task and a thread's memory."""
    kind = ir.FunctionType(ir.VoidType(), (_I64,) * 3)
    builder.call(builder.inttoptr(code, kind.as_pointer()), [step, task, scratch])
