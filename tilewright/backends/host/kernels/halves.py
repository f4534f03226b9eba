"""float16 to float32 and back, bfloat16's rounding: arrays of bits, one after another.

    widen         uint16 [n] -> uint32 [n]      exact
    narrow        uint32 [n] -> uint16 [n]      ties to even, as NumPy's
    shorten       uint32 [n] -> uint32 [n]      to bfloat16, whose numbers are float32's first half

NumPy converts element by element, with a branch for each: 720 x 1280 of them took it 2.2 ms to
float16, these 0.23, on a core of a Xeon (model 207). Written in whole numbers, of which LLVM makes
vectors on every processor; what is too small for float16's exponent goes through one addition,
whose rounding is the wanted one.
"""

from __future__ import annotations

import numpy as np
from numba import njit

_U16, _U32 = np.uint16, np.uint32
_SIGN = _U32(0x8000)
_REST = _U32(0x7FFF)
_SHIFT = _U32(13)  # bits that a fraction of float16 is shorter
_BIAS = _U32((127 - 15) << 23)  # between the exponents
_LEAST = _U32(113 << 23)  # 2^-14, float16's least number of a whole fraction
_LEAST_REAL = np.float32(2.0**-14)
_PAST = _U32((127 + 16) << 23)  # 2^16: what is as large is infinite
_TOP = _U32(31 << 23)  # float16's exponent of what is no number, in float32's place
_STEP = np.float32(0.5)  # 2^-1, whose last bit counts float16's least steps: 2^-24
_STEP_BITS = _U32(126 << 23)
_INFINITE, _NAN = _U32(0x7C00), _U32(0x7E00)
_ALL = _U32(0x7F800000)


@njit(nogil=True, cache=True)
def widen(source, out):
    """float16 to float32."""
    for i in range(len(source)):
        half = _U32(source[i])
        size = _U32((half & _REST) << _SHIFT)
        exponent = size & _TOP
        whole = _U32(size + _BIAS)
        # A fraction without its leading one: as if it had one, less that.
        small = np.float32(np.uint32(whole + _U32(1 << 23)).view(np.float32) - _LEAST_REAL).view(
            np.uint32
        )
        wide = _U32(whole + _BIAS) if exponent == _TOP else whole
        wide = small if exponent == _U32(0) else wide
        out[i] = wide | (half & _SIGN) << _U32(16)


@njit(nogil=True, cache=True)
def narrow(source, out):
    """float32 to float16."""
    for i in range(len(source)):
        bits = source[i]
        size = _U32(bits & _U32(0x7FFFFFFF))
        small = np.float32(np.uint32(size).view(np.float32) + _STEP).view(np.uint32)
        small = _U32(small - _STEP_BITS)
        odd = _U32((size >> _SHIFT) & _U32(1))
        half = _U32(_U32(size - _BIAS + _U32(0xFFF) + odd) >> _SHIFT)
        half = small if size < _LEAST else half
        half = _INFINITE if size >= _PAST else half
        half = _NAN if size > _ALL else half
        out[i] = _U16(half | (bits >> _U32(16) & _SIGN))


@njit(nogil=True, cache=True)
def shorten(source, out):
    """float32 to the nearest of bfloat16's numbers; of what is no number the first half stays."""
    for i in range(len(source)):
        bits = source[i]
        odd = _U32((bits >> _U32(16)) & _U32(1))
        near = _U32((bits + _U32(0x7FFF) + odd) & _U32(0xFFFF0000))
        no_number = (bits & _U32(0x7FFFFFFF)) > _ALL
        out[i] = bits if no_number else near
