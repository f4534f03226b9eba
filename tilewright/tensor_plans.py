"""Dense products of torch tensors, found again by how the tensors lie: microseconds a call.

    first call    checks -> views -> Work (tensor_call.py) -> engines -> a plan, kept by its key
    from then on  key -> plan -> the tensors' addresses -> launch

A key holds sizes, strides, alignments, dtypes, the device and the options, never an address: a
fresh result has another each time. What depends on addresses is asked at each call: overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from tilewright.backends.cuda import arrays, engines
from tilewright.backends.cuda.engine import Work
from tilewright.errors import OverlapError
from tilewright.remember import Shelf
from tilewright.tensor_call import Product

_ALIGNED = 255  # of an address these bits may matter
_OVERLAP = "out: shares memory with {}; accepted is an array apart from every input"
# Computes the product of a, b and bias into out, or into a new tensor where that is None.
Run = Callable[[Any, Any, Any, Any], Any]
plans: Shelf[Hashable, Run] = Shelf("dense products on GPUs", most=64 << 20)


def key_of(a: Any, b: Any, out: Any, bias: Any, options: dict[str, Any]) -> Hashable:
    """What decides a plan; None where the call is not of plain tensors and plain options."""
    if (
        type(options["alpha"]) is not float
        or type(options["beta"]) is not float
        or type(options["transpose_a"]) is not bool
        or type(options["transpose_b"]) is not bool
    ):
        return None
    facts = [_facts(a), _facts(b), *options.values()]
    for one in (out, bias):
        facts.append(None if one is None else _facts(one))
    if None in facts[:2] or (facts[-2] is None) != (out is None):
        return None
    return None if (facts[-1] is None) != (bias is None) else tuple(facts)


def _facts(tensor: Any) -> tuple[Any, ...] | None:
    """How a tensor lies; None where it has elements and no memory."""
    at = tensor.data_ptr()
    if not at and tensor.numel():
        return None
    return (
        tensor.shape,
        tensor.stride(),
        tensor.dtype,
        at & -at & _ALIGNED,
        tensor.get_device(),
    )


def planned(product: Product, a: Any, b: Any, out: Any, bias: Any) -> tuple[Run, int]:
    """How to compute what was just checked, from now on, and how many bytes that holds."""
    movable = engines.move(product.work, product.device, product.kernel)
    run = _launched(product.work, tuple(product.shape), movable)
    return (run if out is None else _apart(run, a, b, out, bias)), movable.bytes + 2048


def _launched(work: Work, shape: tuple[int, ...], movable: engines.Movable) -> Run:
    count = len(work.m)
    columns = [work.a, work.b, work.c, *(() if work.bias is None else (work.bias,))]
    biased = work.bias is not None
    launch = movable.run
    if count == 1:

        def one(a: Any, b: Any, out: Any, bias: Any) -> Any:
            result = a.new_empty(shape) if out is None else out
            at = [a.data_ptr(), b.data_ptr(), result.data_ptr()]
            if biased:
                at.append(bias.data_ptr())
            launch(np.array((*at, 0), np.int64))
            return result

        return one
    apart = np.concatenate([part.address - part.address[0] for part in columns] or [np.zeros(0)])
    apart = np.append(apart, 0).astype(np.int64)
    which = np.append(np.repeat(np.arange(len(columns)), count), len(columns))

    def many(a: Any, b: Any, out: Any, bias: Any) -> Any:
        result = a.new_empty(shape) if out is None else out
        at = [a.data_ptr(), b.data_ptr(), result.data_ptr()]
        if biased:
            at.append(bias.data_ptr())
        launch(np.array((*at, 0), np.int64)[which] + apart)
        return result

    return many


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
                raise OverlapError(_OVERLAP.format(name))
        result = run(a, b, out, bias)
        arrays.written([out])
        return result

    return checked
