"""Columns of the tables that say what a chain's stages and a strip's parts are: plain numbers.

Written by `backends/host/conv_bound.py`, read by the kernels of `conv_chain.py` beside this file.
"""

# F(4x4, 3x3) evaluates polynomials at 0, -NEAR, NEAR, -FAR, FAR and infinity; their powers are
# exact in float32.
NEAR, FAR = 5 / 8, 3 / 2

# What a stage does.
PLANES, BLOCKED, FEW, WINOGRAD = range(4)

# A stage, the same for all strips; addresses, or bytes from where a worker's memory begins.
(
    KIND,
    BLOCKS,  # of sixteen channels, or planes of one
    CELL,  # bytes of one column of a block: 64; 16 where four channels are folded, 4 of a plane
    RING,  # where its ring begins in the worker's memory
    RING_ROWS,
    COLUMNS,  # of a row of the ring
    INPUTS,  # channels
    QUARTERS,  # fours of input channels
    FOLDING,  # whether lanes hold four parts of the sums of four channels
    WEIGHTS,
    PLAIN,  # weights [3][3][inputs][blocks][16], for tiles that hold infinities or NaN
    BIAS,
    OUTPUTS,  # channels
    FINISHED,  # whether a residual or an activation is left to do once the sums lie in the ring
    ACTIVATION,  # its place in `engines.conv.ACTIVATIONS`
    SLOPES,
    ADDED,  # the residual: where it begins, and elements from image to image, channel, row, column
    ADDED_IMAGE,
    ADDED_CHANNEL,
    ADDED_ROW,
    ADDED_COLUMN,
) = range(21)
FIELDS = 21

# A stage's numbers: limits of its results, and what its activation is given.
LEAST, MOST, LOW, HIGH = range(4)

# A strip's part of a stage: columns [LEFT, RIGHT), bands [FIRST, LAST).
LEFT, RIGHT, FIRST, LAST = range(4)

# The ends: addresses, and elements from image to image, channel to channel, row to row and so on.
(
    STEP,  # rows of a band
    HEIGHT,
    WIDTH,
    BANDS,
    PICTURE_CHANNEL,
    PICTURE_ROW,
    PICTURE_COLUMN,
    CHANNELS,
    RESULT_CHANNEL,
    RESULT_ROW,
    RESULT_COLUMN,
    SHUFFLE,
    TILES,  # where transformed tiles, sums and tables of addresses begin in the worker's memory
    SUMS,
    TABLES,
    SPARE,  # a row of a block
) = range(16)
CALL = 16
