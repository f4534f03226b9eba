"""Remembers plain products that a plan left to the host: NumPy gets them at once the next time."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright import settings
from tilewright.calls.dense_plan_host import ALWAYS_HOST, keep_bounds, known_bounds
from tilewright.calls.dense_run_host import prepare
from tilewright.facts.device import Device
from tilewright.remember import Shelf
from tilewright.tuning import crossover

_SINGLE, _DOUBLE = np.dtype(np.float32), np.dtype(np.float64)
_COMPLEX = (np.dtype(np.complex64), np.dtype(np.complex128))
# Plain products (no option but the operands) that a plan has left to the host: NumPy gets them at
# once the next time. Planning them again would add 40 µs to products that take about as long.
_plain: Shelf[tuple[Any, ...], bool] = Shelf("plain products of the host", most=1 << 20)


_NONE = ("out", "bias", "activation", "kernel", "precision", "accumulate")


def matmul(a: Any, b: Any, **options: Any) -> Any:
    """The product at once where it is the host's for certain, else by a plan."""
    plain = type(a) is type(b) is np.ndarray and _is_plain(**options)
    if plain and is_host_product(a, b, options["device"]):
        with contextlib.suppress(MemoryError):  # the checks have the words for it
            return np.matmul(a, b)
    return planned(a, b, **options)


def _is_plain(alpha: Any, beta: Any, transpose_a: Any, transpose_b: Any, **others: Any) -> bool:
    return (
        all(others[name] is None for name in _NONE)
        and type(alpha) is type(beta) is float
        and alpha == 1.0
        and beta == 0.0
        and transpose_a is transpose_b is False
    )


def planned(a: Any, b: Any, **options: Any) -> Any:
    """The product by a plan; what the plan leaves to the host is remembered."""
    call = prepare(a, b, **options)
    plain = type(a) is type(b) is np.ndarray and options["kernel"] is None
    if plain and call.product.place.is_host:
        if options["device"] is None:
            keep_bounds(call.plan, call.learns)
        plain = not (options["transpose_a"] or options["transpose_b"]) and call.settled
        if call.plan.kernel == "host" and call.plan.problem.dtype != "float16" and plain:
            _plain.keep(_signature(a, b, _name_of(options["device"])), True, size=300)
    return call.run()


crossover.on_change(_plain.clear)


def is_host_product(a: npt.NDArray[Any], b: npt.NDArray[Any], device: Any = None) -> bool:
    """Whether a plan would leave these plain operands to NumPy for certain, or has done so.

    `device` as it was given: the host's products are all NumPy's, those of another that is named
    where a plan has said so of operands that lie alike.
    """
    dtype = a.dtype
    if device is not None:
        if dtype is not b.dtype:
            return False
        # Elements of swapped bytes have the letter of those that a plan has known.
        if dtype is not _SINGLE and dtype is not _DOUBLE and dtype not in _COMPLEX:
            return False
        named = _name_of(device)
        if named == "host":
            return _are_chained(a, b)
        return bool(named) and _plain.get(_signature(a, b, named)) is True
    if dtype is not b.dtype or (dtype is not _SINGLE and dtype is not _DOUBLE):
        # Of complex numbers nobody else has a kernel.
        return dtype in _COMPLEX and dtype is b.dtype and _are_chained(a, b)
    named = settings.device()
    if a.ndim == b.ndim == 2:
        (m, k), (rows, n) = a.shape, b.shape
        flops = 2 * m * n * k
        if k != rows:
            return False
        if named is None and flops <= ALWAYS_HOST:
            return True
        bounds = known_bounds(dtype.char, named)
        if bounds is not None and (flops == 0 or bounds.is_host(m, n, k)):
            return True
    return _plain.get(_signature(a, b, named)) is True


def is_host_result(a: npt.NDArray[Any], b: npt.NDArray[Any], out: npt.NDArray[Any]) -> bool:
    """Whether NumPy may write a plain product of two matrices there as it stands.

    It may where `out` is what NumPy would make: writable, in rows, of the product's size and dtype,
    apart from both operands. Checks and plans of all other results cost some 40 µs.
    """
    return (
        a.ndim == b.ndim == 2
        and out.dtype is a.dtype
        and out.shape == (a.shape[0], b.shape[1])
        and out.flags.carray
        and not np.may_share_memory(out, a)
        and not np.may_share_memory(out, b)
    )


def _name_of(device: Any) -> str | None:
    """The name of the device that a call means; "", which is none's, of what is no device."""
    if device is None:
        return settings.device()
    if isinstance(device, str):
        return device[:]  # plain, of a text of NumPy's or of an enumeration too
    return device.id if isinstance(device, Device) else ""


def _are_chained(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> bool:
    return a.ndim == b.ndim == 2 and a.shape[1] == b.shape[0]


def _signature(a: npt.NDArray[Any], b: npt.NDArray[Any], named: str | None) -> tuple[Any, ...]:
    """What decides the plan of a plain product."""
    return (a.shape, b.shape, a.strides, b.strides, a.dtype.char, named)
