"""Prepares launches of Triton kernels: compiled once, arguments put together once, then one call.

Triton's own `kernel[grid](...)` looks every argument up again at each launch, 17.6 µs of host time;
the launcher of its compiled kernel, called with ready arguments, takes 3.9 µs on the same machine.
A kernel that was compiled for an earlier plan is found by what Triton compiles for.
In Triton's interpreter (TRITON_INTERPRET=1), which the tests use to run kernels on the host, a
prepared launch is a call of the interpreted kernel.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tilewright.errors import BuildError
from tilewright.remember import Shelf, open_after_fork

# Triton gives threads that ask for the same kernel one object, and another thread's first look at
# it may find its machine code half loaded.
_loading = open_after_fork(threading.Lock())
INTERPRETED = -1  # the ordinal of "the host, in Triton's interpreter"
_Compiled = tuple[Callable[..., None], Any, Any]  # launcher, kernel and what is packed beside it
_known: Shelf[tuple[Any, ...], _Compiled] = Shelf("kernels of Triton", most=4 << 20)


@dataclass(frozen=True, slots=True)
class Task:
    """A kernel, how many programs of it, its arguments in order, and what is compiled in."""

    kernel: Any
    programs: int
    arguments: tuple[Any, ...]
    constants: Mapping[str, Any]
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Pointer:
    """An argument that is a list of `dtype` in the batch's table, from byte `at` on.

    Without `at` it is the scratch, of `bytes`.
    """

    dtype: str
    at: int | None = None
    bytes: int = 0

    def of(self, table: Any, scratch: Any) -> Any:
        """As a tensor: `table` has words of 64 bits, `scratch` bytes."""
        import torch

        part = scratch if self.at is None else table[self.at // 8 :]
        return part.view(getattr(torch, self.dtype))

    def sample(self) -> Any:
        """What Triton compiles for: of 2 GiB and more its AMD back end must know."""
        import torch

        dtype = getattr(torch, self.dtype)
        if torch.version.hip is None or self.bytes < 2**31:
            return dtype
        return torch.empty(self.bytes, dtype=torch.uint8, device="cuda").view(dtype)


def placed(task: Task, ordinal: int) -> Callable[[int, Any, Any], None]:
    """The kernel of a task, compiled now: `launch(stream, table, scratch)`.

    Its pointers come before its other arguments. Raises BuildError.
    """
    if not task.programs:
        return lambda stream, table, scratch: None
    pointers = [value for value in task.arguments if isinstance(value, Pointer)]
    numbers = task.arguments[len(pointers) :]
    if ordinal == INTERPRETED:

        def interpret(stream: int, table: Any, scratch: Any) -> None:
            tensors = [pointer.of(table, scratch) for pointer in pointers]
            task.kernel[(task.programs,)](*tensors, *numbers, **task.constants)

        return interpret
    samples = (*(pointer.sample() for pointer in pointers), *numbers)
    run, function, metadata = _recalled(replace(task, arguments=samples), ordinal)
    rest, offsets = (*numbers, *task.constants.values()), [pointer.at for pointer in pointers]
    programs = task.programs

    def launch(stream: int, table: Any, scratch: Any) -> None:
        base = table.data_ptr()
        at = [scratch.data_ptr() if offset is None else base + offset for offset in offsets]
        run(programs, 1, 1, stream, function, metadata, None, None, None, *at, *rest)

    return launch


def reusable(task: Task, ordinal: int) -> Callable[..., None]:
    """The kernel of a task for other tensors each time: `launch(stream, programs, *leading)`.

    The task's tensors come before its other arguments. What leads in a launch, tensors and the
    numbers next to them, takes the places of the task's own. Tensors must have their dtypes and
    addresses that are as aligned, and numbers be those that the kernel does not specialize for:
    Triton compiles for all else. No programs are no launch.
    """
    import torch

    kernel = task.kernel
    count = sum(hasattr(value, "data_ptr") for value in task.arguments)
    arguments = task.arguments
    if ordinal == INTERPRETED or torch.version.hip is not None:  # there also sizes are compiled in
        named = {**task.constants, **({} if ordinal == INTERPRETED else task.options)}

        def look_up(stream: int, programs: int, *leading: Any) -> None:
            if programs:
                kernel[(programs,)](*leading, *arguments[len(leading) :], **named)

        return look_up
    run, function, metadata = _compiled(task)
    # Without the tensors, which a launch brings: kept here they would outlive their owners.
    kept = (None if hasattr(value, "data_ptr") else value for value in arguments)
    every = (*kept, *task.constants.values())

    def launch(stream: int, programs: int, *leading: Any) -> None:
        if programs:
            places = [tensor.data_ptr() for tensor in leading[:count]]
            rest = (*leading[count:], *every[len(leading) :])
            run(programs, 1, 1, stream, function, metadata, None, None, None, *places, *rest)

    return launch


def standing(task: Task) -> Callable[[int], None]:
    """The kernel of a task for its own tensors again and again, on a GPU: `launch(stream)`.

    Where they lie is asked now, once; whoever launches keeps them. Raises BuildError.
    """
    run, function, metadata = _compiled(task)
    values = (one.data_ptr() if hasattr(one, "data_ptr") else one for one in task.arguments)
    given = (*values, *task.constants.values())
    programs = task.programs

    def launch(stream: int) -> None:
        run(programs, 1, 1, stream, function, metadata, None, None, None, *given)

    return launch


def _recalled(task: Task, ordinal: int) -> _Compiled:
    """`_compiled`, kept by what Triton compiles for: types, options, three facts of each number.

    A task that shows it a tensor is looked up by Triton: alignment counts there too.
    """
    if any(hasattr(value, "data_ptr") for value in task.arguments):
        return _compiled(task)
    facts = (
        (value == 1, value % 16 == 0, value.bit_length() > 31) if type(value) is int else value
        for value in task.arguments
    )
    key = (task.kernel, ordinal, *facts, *task.constants.items(), *task.options.items())
    return _known.found(key, lambda: _compiled(task), lambda _: 1024)


def _compiled(task: Task) -> _Compiled:
    """What Triton's launcher takes. Constants travel too, and are ignored there."""
    from triton.errors import TritonError

    try:
        compiled = task.kernel.warmup(
            *task.arguments, grid=(1,), enable_fp_fusion=True, **task.constants, **task.options
        )
        with _loading:
            run = compiled.run  # loads the machine code
    except (TritonError, RuntimeError) as error:  # RuntimeError: from passes and from the driver
        reason = str(error).strip().partition("\n")[0]
        raise BuildError(f"kernel {task.kernel.__name__!r}: {reason}") from error
    return run, compiled.function, compiled.packed_metadata


def triton_type(dtype: str) -> Any:
    """What Triton calls a dtype."""
    import triton.language as tl

    return getattr(tl, dtype)
