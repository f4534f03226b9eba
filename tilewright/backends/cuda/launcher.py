"""Prepared launches of Triton kernels: compiled once, arguments assembled once, then one call each.

Triton's own `kernel[grid](...)` looks every argument up again at each launch, 17.6 µs of host time;
the launcher of its compiled kernel, called with ready arguments, takes 3.9 µs on the same machine.
In Triton's interpreter (TRITON_INTERPRET=1), which the tests use to run kernels on the host, a
prepared launch is a call of the interpreted kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.backends.cuda.engine import Enqueue, Prepared
from tilewright.errors import BuildError

INTERPRETED = -1  # the ordinal of "the host, in Triton's interpreter"


@dataclass(frozen=True, slots=True)
class Task:
    """A kernel, how many programs of it, its arguments in order, and what is compiled in."""

    kernel: Any
    programs: int
    arguments: tuple[Any, ...]
    constants: Mapping[str, Any]
    options: Mapping[str, Any]


def prepare(tasks: Sequence[Task], ordinal: int, held: Sequence[Any] = ()) -> Prepared:
    """The tasks, to be launched in order on a stream of the device, the current one here and there.

    Tensors among the arguments are passed by their address; they and `held` live as long as what is
    returned.
    """
    tasks = [task for task in tasks if task.programs]
    if ordinal == INTERPRETED:
        return Prepared(_interpreted(tasks), len(tasks))
    calls = [_compiled(task) for task in tasks]

    def enqueue(stream: int, held: Any = (tasks, held)) -> None:
        for run, programs, function, metadata, arguments in calls:
            run(programs, 1, 1, stream, function, metadata, None, None, None, *arguments)

    return Prepared(enqueue, len(calls))


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
    run, _, function, metadata, arguments = _compiled(task)

    def launch(stream: int, programs: int, *leading: Any) -> None:
        if programs:
            places = [tensor.data_ptr() for tensor in leading[:count]]
            rest = (*leading[count:], *arguments[len(leading) :])
            run(programs, 1, 1, stream, function, metadata, None, None, None, *places, *rest)

    return launch


def _compiled(task: Task) -> tuple[Callable[..., None], int, Any, Any, tuple[Any, ...]]:
    """What Triton's launcher takes; constants travel too, and are ignored there."""
    from triton.errors import TritonError

    try:
        compiled = task.kernel.warmup(
            *task.arguments, grid=(1,), enable_fp_fusion=True, **task.constants, **task.options
        )
        run = compiled.run  # loads the machine code
    except (TritonError, RuntimeError) as error:  # RuntimeError: from passes and from the driver
        reason = str(error).strip().partition("\n")[0]
        raise BuildError(f"kernel {task.kernel.__name__!r}: {reason}") from error
    arguments = (
        value.data_ptr() if hasattr(value, "data_ptr") else value
        for value in (*task.arguments, *task.constants.values())
    )
    return run, task.programs, compiled.function, compiled.packed_metadata, (*arguments,)


def _interpreted(tasks: Sequence[Task]) -> Enqueue:
    def enqueue(stream: int) -> None:
        for task in tasks:
            task.kernel[(task.programs,)](*task.arguments, **task.constants)

    return enqueue
