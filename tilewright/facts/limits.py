"""The largest sizes that matrices may have."""

from __future__ import annotations

MOST = 2**31 - 64  # kernels count rows and columns in 32 bits, a tile past the last
# Of k, on a device with "short_loops": its driver ends the loops of a work-item after 65,535 steps
# together, without a word. Every kernel was right to 4,099 there, `local` wrong at 20,000.
SHORT_LOOPS = 4096
