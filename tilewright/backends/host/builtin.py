"""Makes a built-in function of Python, as `len` is one, of machine code that Numba compiled.

Python calls it without a frame and without a tuple of its arguments.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

_FASTCALL = 0x80  # METH_FASTCALL: the function takes an array of objects and their number


class _Definition(ctypes.Structure):
    """PyMethodDef, which Python does not copy."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("code", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_kept: list[tuple[_Definition, tuple[object, ...]]] = []
# A function of our own: what is set at ctypes.pythonapi's is set for every library.
_make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)(
    ("PyCFunction_NewEx", ctypes.pythonapi)
)


def builtin(
    name: str, address: int, told: bytes, named: tuple[object, ...] = ()
) -> Callable[..., Any]:
    """A function of the machine code at `address`, which is PyObject *(PyObject *told, PyObject
    *const *given, Py_ssize_t count).

    `told` is kept with it, and so are the objects `named`, whose addresses it tells.
    """
    definition = _Definition(name.encode(), address, _FASTCALL, None)
    _kept.append((definition, named))
    made: Callable[..., Any] = _make(ctypes.addressof(definition), told, None)
    return made
