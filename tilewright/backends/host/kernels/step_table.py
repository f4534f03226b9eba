"""Fields of the record that tells one step of a program: numbers and addresses.

Written by `conv_bind.py`, `conv_expand.py`, `conv_winograd.py` and `values.py` of `backends/host`,
read by the tasks of the kernels beside this file.
"""

import numpy as np

# A picture lies at `x`: bytes from one image, row, pixel, channel to the next; `out` likewise.
_WHOLE = (
    *("kind", "code", "tasks"),  # `code`: address of what does one task, filled in before a run
    *("x", "x_image", "x_row", "x_pixel", "x_channel", "height", "width"),
    *("out", "out_image", "out_row", "out_pixel", "out_channel", "rows", "columns", "outputs"),
    *("top", "left", "y_stride", "x_stride"),  # zeros above and beside; less than none are cut
    *("taps_down", "taps_across", "dilation_down", "dilation_across"),
    "reach",  # rows of a window; of "depth" columns
    *("copied", "line", "pixel", "wide"),  # bytes of a row and pixel as read; a copied row
    *("pieces", "count"),  # of a window, as `conv_tile` wants them
    *("weights", "block_bytes", "bias", "slopes"),
    *("groups", "group_bytes", "group_outputs", "blocks"),  # blocks of channels of a group
    "group_out",  # bytes from a group's results to the next's
    *("bands", "band", "parts", "block_step"),  # rows or pixels of a task; blocks of a task
    "residual",  # bytes from a result to what is added; 0 for nothing
    "ring",  # rows between two convolutions of one step
    "curved",  # number of an activation that is more than two bounds, or 0
    *("through", "shuffle", "fine_row", "fine_pixel"),  # results that lie otherwise
    *("planes", "tile", "tiles", "across", "inputs"),  # Winograd's: results a side, how many
    # Of batches: tiles or pieces, the first of every task, the code of what they multiply by; of
    # AMX's tiles, where those may, else 0.
    *("queue", "cuts", "multiply", "amx"),
)
_REAL = ("low", "high", "least", "most")  # numbers of the activation; bounds of the plain sums
STEP = np.dtype([(name, np.int64) for name in _WHOLE] + [(name, np.float32) for name in _REAL])
SIZE = STEP.itemsize
# Places, counted in words.
CODE, TASKS, QUEUE, CUTS, MULTIPLY, AMX = map(
    _WHOLE.index, ("code", "tasks", "queue", "cuts", "multiply", "amx")
)
