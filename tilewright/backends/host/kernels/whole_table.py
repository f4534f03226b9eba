"""What the kernels of int8 chains are told: a record a stage, 0 being x as it is read.

Written by `backends/host/conv_whole_bound.py`; plain numbers.
"""

from __future__ import annotations

import numpy as np

# What becomes of a layer's sums.
BYTES, DIVIDED, FLOATS, FEW, DEPTH = range(5)
# How x is read: as it lies; bytes copied; float32 rounded.
DIRECT, COPIED, TAKEN = range(3)

_WHOLE = (
    "base",  # of a stage's rows: bytes into a worker's memory, or an address
    *("fixed", "image"),  # whether it is an address; bytes from one image to the next
    *("line", "rows", "height", "width", "channels"),  # bytes of a row; rows kept; sizes
    "margin",  # bytes before a row's first pixel
    "outside",  # bytes into the memory: a row of what stands for 0, for the layer that reads this
    *("kind", "flip"),  # 128 where bytes are signed
    # Of x: elements from one image, channel, row, pixel to the next.
    *("x", "x_image", "x_channel", "x_row", "x_pixel"),
    # Of a layer: its window, and how its pieces lie in a row.
    *("taps", "dilation", "stride", "top", "splits", "piece", "quads", "pixel"),
    *("groups", "inputs", "outputs"),  # inputs and outputs of a group
    *("weights", "start", "ends", "scale"),
    *("group_weights", "group_starts", "group_ends"),  # bytes of a group
    # Of a result that is float32: its own steps, in elements.
    *("out_image", "out_channel", "out_row", "out_pixel", "shuffle"),
    "residual",  # bytes from a result to what is added before the limits; 0 for nothing
)
_REAL = ("low", "high", "step", "shift", "least", "most")  # limits of y; of bytes before `flip`
STAGE = np.dtype([(name, np.int64) for name in _WHOLE] + [(name, np.float32) for name in _REAL])
JOB = 3  # stage, first row, row after the last
