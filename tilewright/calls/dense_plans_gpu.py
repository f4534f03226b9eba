"""Finds the plan of a product on a GPU again, by how its tensors lie: a call costs microseconds.

    first call    checks -> views -> Work (dense_work_gpu.py) -> engines -> a plan, kept by its key
    from then on  key -> plan -> the tensors' addresses -> launch

A key holds sizes, strides, alignments, dtypes, the device and the options, never an address: a
fresh result has another each time. What depends on addresses is asked at each call: overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, NoReturn

import numpy as np

from tilewright.arrays import torch_private as private
from tilewright.arrays.storage import is_short, is_within, reach, told
from tilewright.arrays.views import loaded_torch
from tilewright.backends.cuda import choose
from tilewright.backends.cuda.machine import arrays, driver
from tilewright.backends.cuda.machine.results import maker
from tilewright.backends.cuda.work import Ints, Work
from tilewright.errors import OperandError, OverlapError
from tilewright.facts.device import Device
from tilewright.inputs.overlap import SHARED
from tilewright.inputs.watched import are_unseen
from tilewright.remember import Shelf

_ALIGNED = 255  # of an address these bits may matter
# Computes the product of a, b and bias into out, or into a new tensor where that is None.
Run = Callable[[Any, Any, Any, Any], Any]
plans: Shelf[Hashable, Run] = Shelf("dense products on GPUs", most=64 << 20)


def known(key: Hashable) -> Run | None:
    """The plan kept under a key of `key_of`."""
    try:
        return plans.get(key)
    except TypeError:  # an option of a kind that nothing accepts
        return None


def key_of(a: Any, b: Any, out: Any, bias: Any, options: tuple[Any, ...]) -> Hashable:
    """What decides a plan; None where tensors own no memory or the options are no plain ones."""
    alpha, beta, turns_a, turns_b = options[:4]
    if not (type(alpha) is type(beta) is float and type(turns_a) is type(turns_b) is bool):
        return None
    at_a, at_b = a.data_ptr(), b.data_ptr()
    if not (at_a and at_b):
        return None
    low_a, low_b = at_a & -at_a & _ALIGNED, at_b & -at_b & _ALIGNED
    lies_a, lies_b = a.stride(), b.stride()
    where = (a.get_device(), b.get_device(), low_a, low_b, a.dtype, b.dtype)
    key = (a.shape, b.shape, lies_a, lies_b, where, options)
    if out is bias is None:
        return key
    more = [None if one is None else _facts(one) for one in (out, bias)]
    return None if () in more else (key, *more)


def _facts(tensor: Any) -> tuple[Any, ...]:
    """How a tensor lies; nothing where it has no memory."""
    at = tensor.data_ptr()
    lies = (tensor.shape, tensor.stride(), tensor.dtype, at & -at & _ALIGNED, tensor.get_device())
    return lies if at else ()


def planned(
    work: Work, device: Device, kernel: str | None, shape: tuple[int, ...], *given: Any
) -> tuple[Run, int]:
    """How to compute what was just checked, from now on, and how many bytes that holds.

    `given` are a, b, out and bias; a new result has this `shape`.
    """
    movable = choose.move(work, device, kernel)
    run = _within(_launched(work, shape, movable), *given)
    return (run if given[2] is None else _apart(run, *given)), movable.bytes + 2048


def _launched(work: Work, shape: tuple[int, ...], movable: choose.Movable) -> Run:
    """The launch of a plan, on its GPU; made the current one where it is not."""
    torch, ordinal = driver.need(), work.ordinal
    device_of = private.current_device(torch)
    if movable.one is not None:
        here = _by_library(movable.one, maker(shape, work.dtype, ordinal))
    else:
        here = _by_tables(work, movable.run, maker(shape, work.dtype, ordinal))

    def run(a: Any, b: Any, out: Any, bias: Any) -> Any:
        if device_of() == ordinal:
            return here(a, b, out, bias)
        with torch.cuda.device(ordinal):
            return here(a, b, out, bias)

    return run


def _by_library(multiply: Callable[[int, int, int], None], new: Callable[[], Any]) -> Run:
    def run(a: Any, b: Any, out: Any, bias: Any) -> Any:
        result = new() if out is None else out
        multiply(a.data_ptr(), b.data_ptr(), result.data_ptr())
        return result

    return run


def _by_tables(work: Work, launch: Callable[[Ints], None], new: Callable[[], Any]) -> Run:
    """By the addresses of all problems, which follow from those of the tensors."""
    count, biased = len(work.m), work.bias is not None
    columns = [work.a, work.b, work.c, *(() if work.bias is None else (work.bias,))]
    apart = np.concatenate([part.address - part.address[0] for part in columns] or [np.zeros(0)])
    apart = np.append(apart, 0).astype(np.int64)
    which = np.append(np.repeat(np.arange(len(columns)), count), len(columns))

    def run(a: Any, b: Any, out: Any, bias: Any) -> Any:
        result = new() if out is None else out
        at = [a.data_ptr(), b.data_ptr(), result.data_ptr()]
        if biased:
            at.append(bias.data_ptr())
        places = np.array((*at, 0), np.int64)
        launch(places if count == 1 else places[which] + apart)
        return result

    return run


def _within(run: Run, *given: Any) -> Run:
    """The same, refused where a storage has shrunk since; tensors reach as far as `given` ones."""
    first, second, third, last = (0 if one is None else reach(one) for one in given)

    def checked(a: Any, b: Any, out: Any, bias: Any) -> Any:
        if not (is_within(a, first) and is_within(b, second)):
            _refuse(a=a, b=b)
        if out is not None and not is_within(out, third):
            _refuse(out=out)
        if bias is not None and not is_within(bias, last):
            _refuse(bias=bias)
        return run(a, b, out, bias)

    return checked


def _refuse(**given: Any) -> NoReturn:
    """Raise OperandError for the first whose storage is too short."""
    name, short = next((name, one) for name, one in given.items() if is_short(one))
    raise OperandError(told(short, name))


def _apart(run: Run, *given: Any) -> Run:
    """The same, refused where `out` shares memory with an input; extents are those of `given`."""
    extents = [(0, 0) if one is None else arrays.extent(one) for one in given]

    def checked(a: Any, b: Any, out: Any, bias: Any) -> Any:
        low, high = (out.data_ptr() + end for end in extents[2])
        for name, one, (first, last) in (
            ("a", a, extents[0]),
            ("b", b, extents[1]),
            ("bias", bias, extents[3]),
        ):
            if one is not None and low < one.data_ptr() + last and one.data_ptr() + first < high:
                raise OverlapError(SHARED.format(name))
        result = run(a, b, out, bias)
        arrays.written([out])
        return result

    return checked


# Last: who finds it while another thread loads this file finds all that it needs.
def by_known_plan(a: Any, b: Any, options: tuple[Any, ...]) -> Any:
    """A new product of two tensors by a plan that there is; None where there is none.

    `options` are those of `tilewright.matmul` but for `out` and `bias`, in its order. The short way
    of what nothing in torch looks at: going through every check took 40 us of an H200's host.
    """
    torch = loaded_torch()
    if torch is None or type(a) is not torch.Tensor or type(b) is not torch.Tensor:
        return None
    if not are_unseen(torch, a, b):
        return None
    plan = known(key_of(a, b, None, None, options))
    return None if plan is None else plan(a, b, None, None)
