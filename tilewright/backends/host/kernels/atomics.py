"""What threads of one kernel share: a counter that they take tasks from, and plain memory.

Threads that meet after every few microseconds do not sleep: they look again, and after many looks
they let others have the core.
"""

from __future__ import annotations

import platform
import sys

from llvmlite import ir
from numba import types
from numba.core import cgutils

from tilewright.backends.host.kernels.emitted import emitted

_I8, _I32, _I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)


# Linux's semaphores are 32 bytes, and of zeros before the first is posted.
SEMAPHORES = sys.platform == "linux"


def _word(builder, address):
    return builder.inttoptr(address, _I64.as_pointer())


@emitted(types.int64, types.intp, types.intp)
def take(builder, address, count):
    """The int64 at `address` as it was, which is `count` more then: nobody else gets those."""
    return builder.atomic_rmw("add", _word(builder, address), count, "seq_cst")


@emitted(types.int64, types.intp)
def seen(builder, address):
    """The int64 at `address`, as other threads left it."""
    return builder.load_atomic(_word(builder, address), "seq_cst", 8)


@emitted(types.void, types.intp, types.intp)
def tell(builder, address, value):
    """The int64 at `address` becomes `value`; who sees it sees all that was written before."""
    builder.store_atomic(value, _word(builder, address), "seq_cst", 8)


@emitted(types.boolean, types.intp, types.intp, types.intp)
def turn(builder, address, before, after):
    """Whether the int64 at `address` was `before`; it is `after` then."""
    word = _word(builder, address)
    made = builder.cmpxchg(word, before, after, "seq_cst", "seq_cst")
    return builder.extract_value(made, 1)


def _semaphore(name):
    """One of POSIX's functions of a semaphore: sem_wait, which sleeps until there is one, or its
    counterpart sem_post. Neither needs the interpreter's lock, nor wakes who waits for it."""

    @emitted(types.void, types.intp)
    def call(builder, address):
        if SEMAPHORES:
            kind = ir.FunctionType(_I32, (_I8.as_pointer(),))
            function = cgutils.get_or_insert_function(builder.module, kind, name)
            builder.call(function, [builder.inttoptr(address, _I8.as_pointer())])

    return call


sleep_at, wake_at = _semaphore("sem_wait"), _semaphore("sem_post")


@emitted(types.voidptr, types.intp)
def pointer(builder, address):
    """An address as Numba's `carray` takes it."""
    return builder.inttoptr(address, _I8.as_pointer())


@emitted(types.void)
def let_others(builder):
    """Sleep for a moment: another thread, of whatever process, gets this core.

    Yielding it is not enough: the scheduler may keep two threads that yield on one core, a third
    spinning on the other.
    """
    if sys.platform != "win32":
        kind = ir.FunctionType(_I32, (_I32,))
        sleep = cgutils.get_or_insert_function(builder.module, kind, "usleep")
        builder.call(sleep, [_I32(1)])


@emitted(types.void)
def breathe(builder):
    """A moment in which a thread of the same core, where cores run two, gets more of it."""
    if platform.machine().lower() in ("x86_64", "amd64"):
        kind = ir.FunctionType(ir.VoidType(), ())
        name = "llvm.x86.sse2.pause"
        builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [])


@emitted(types.void, types.intp, types.intp, types.intp)
def copy(builder, target, source, size):
    """`size` bytes, which do not overlap."""
    places = [builder.inttoptr(at, _I8.as_pointer()) for at in (target, source)]
    cgutils.raw_memcpy(builder, *places, size, 1)


@emitted(types.void, types.intp, types.intp)
def clear(builder, target, size):
    """`size` bytes become 0."""
    cgutils.memset(builder, builder.inttoptr(target, _I8.as_pointer()), size, 0)
