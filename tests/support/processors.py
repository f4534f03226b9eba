"""Processors that have less than this one, as Numba is told of them, in a process of its own.

Under one description all tests of one share what is compiled for it.
"""

from __future__ import annotations

HASWELL = "+avx2,+fma,+popcnt,+bmi,+bmi2"
TOLD = {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": HASWELL}
