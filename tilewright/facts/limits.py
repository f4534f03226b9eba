"""The largest size that a matrix may have in any direction."""

from __future__ import annotations

MOST = 2**31 - 64  # kernels count rows and columns in 32 bits, a tile past the last
