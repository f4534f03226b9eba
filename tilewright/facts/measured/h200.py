"""What was measured of an H200: the numbers by which every engine of NVIDIA's GPUs predicts.

    the chip          UNITS, PEAKS, READ          what `tilewright peak` found of it
    vendor            LIBRARY_*                    cuBLAS 13.0 called by name, torch 2.11
    triton_grouped    TILES_*, TILE_LAUNCH, ...    seconds of a tile, by dtype and loads
    hopper            HOPPER_*                     tensor cores fed by the copy engine
    one-bit           BITS_*
    convolutions      CHAIN_*, CONV_*             chains as one kernel, and layer by layer

Seconds, bytes and flops a second, a multiply-add being two. No other chip has a file, so others are
predicted by these numbers, scaled by their ceilings where those were measured (scale.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

UNITS = 132  # multiprocessors
# The best row of `tilewright peak` by dtype, and its read of the largest working set.
PEAKS = {"float64": 33.4e12, "float32": 65.3e12, "float16": 897e12, "bfloat16": 947e12}
READ = 4.44e12

# Large products by the vendor's library: flops of each dtype and precision, and bytes.
LIBRARY = {
    ("float16", "ieee"): 770e12,
    ("bfloat16", "ieee"): 780e12,
    ("float32", "ieee"): 51e12,
    ("float32", "tf32"): 400e12,
    ("float64", "ieee"): 60e12,
    # A quarter: a complex multiply-add, counted as two here, is four real ones.
    ("complex64", "ieee"): 12.7e12,
    ("complex128", "ieee"): 15e12,
}
LIBRARY_MEMORY = 4.0e12
# cuBLAS falls to a fifth where half-precision rows are no multiples of 16 bytes (150 of 790).
LIBRARY_UNALIGNED = 0.19
LIBRARY_START = 6e-6  # a call's own time on the device
# Products of few tiles are cut along k: they take at most so many times what they would if the
# device were full, and a share of the time in which one compute unit goes down k with a tile of
# 128 x 128. Of 147 calls in fp32 and bf16 129 took within a quarter of what is predicted so.
LIBRARY_WORST_WAVES = 1.2
LIBRARY_DEEP, LIBRARY_DEEPEST = 0.1, 5e-6

# Triton's tiles in work on a multiprocessor at once. The planner's slots are equal; registers allow
# 2 to 32.
RESIDENT = 4
CUDA_SINGLE_RESIDENT, CUDA_DOUBLE_RESIDENT = 6, 3  # of grouped_single.cu, grouped_double.cu
TILE_LAUNCH = 6e-6  # of a launch of its own: its start, and the idle end of the one before
TILE_START = 3e-6  # from one launch to the next on an empty device
TILE_MERGE = 3e-12  # to write and read an element of a partial result, on a full device
# Seconds a tile of a full device, and seconds for 128 steps of k more, by (rows, columns). From
# batches of 2 x 2 tiles a problem with odd strides, k of 128 and 1024; wide: aligned ones. Halves
# with odd strides take 13 to 17 % less in real batches, whose edges load less. So do fp32 tiles of
# 16 x 16, of which full ones take 4.99e-9: by them alone 2,000 products drawn by a power law took
# 57 us, by four shapes 77. Tiles of 32 x 64 by two warps are no faster on a full device and 1.4
# times as slow on one that is not.
TileSeconds = dict[tuple[int, int], tuple[float, float]]
TILES_SINGLE: TileSeconds = {
    (64, 64): (6.15e-9, 29.1e-9),
    (32, 32): (2.60e-9, 11.2e-9),
    (16, 32): (1.56e-9, 6.06e-9),
    (16, 16): (0.57e-9, 4.84e-9),
}
# 4096 x 4096 x 4096, and 16 products with k of 512, whose rows are all multiples of 16 bytes.
TILES_WIDE_SINGLE: TileSeconds = {**TILES_SINGLE, (64, 64): (2.0e-9, 24.6e-9)}
# Tiles of grouped_single.cu, and Triton's small ones. Of a tile at an edge, of which a half or a
# quarter exists, half the time is kept: it waits for loads. Of odd rows within 1 %: 1000 products
# of 1..256 and of 1..512, 200 of 64..512, 800 of 2..900 even in logarithms; of even ones 4096 x
# 4096 x 4096 and graph-hgt-ogbn-mag within 2, 16 of 1024 x 1024 x 512 7 % too slow.
TILES_CUDA_SINGLE: TileSeconds = {**TILES_SINGLE, (64, 64): (3.7e-9, 23.9e-9)}
TILES_CUDA_WIDE_SINGLE: TileSeconds = {**TILES_SINGLE, (64, 64): (3.0e-9, 21.8e-9)}
CUDA_SINGLE_KEPT = 0.5
# Tiles of grouped_small.cu, a warp each, of batches of many sizes, whose edges load less; full ones
# take (2.2e-9, 9.5e-9) to (0.98e-9, 3.65e-9). So many are planned as at work at once: 20 are, but a
# few alone are faster than those.
SMALL_RESIDENT = 8
TILES_SMALL_SINGLE: TileSeconds = {
    (32, 32): (1.75e-9, 8.2e-9),
    (32, 16): (1.05e-9, 5.6e-9),
    (16, 32): (1.0e-9, 5.2e-9),
    (16, 16): (0.6e-9, 3.35e-9),
}
TILES_TF32: TileSeconds = {
    (64, 64): (8.0e-9, 15.5e-9),
    (32, 32): (3.66e-9, 7.58e-9),
    (16, 32): (1.74e-9, 4.72e-9),
    (16, 16): (0.75e-9, 3.06e-9),
}
TILES_HALF: TileSeconds = {
    (64, 128): (10.0e-9, 15.0e-9),
    (64, 64): (5.80e-9, 9.80e-9),
    (32, 32): (2.10e-9, 4.20e-9),
    (16, 16): (0.60e-9, 2.30e-9),
}
TILES_WIDE_HALF: TileSeconds = {
    (128, 256): (33.3e-9, 13.2e-9),
    (128, 128): (15.2e-9, 8.87e-9),
    (64, 64): (5.39e-9, 4.39e-9),
    (32, 32): (1.44e-9, 2.72e-9),
    (16, 16): (0.62e-9, 1.63e-9),
}
TILES_DOUBLE: TileSeconds = {
    (64, 64): (13.7e-9, 24.9e-9),
    (32, 32): (3.84e-9, 10.9e-9),
    (16, 16): (1.40e-9, 5.96e-9),
}
# Of grouped_double.cu, a mean of tiles within products and at their edges, which multiply less.
# Predicted within 3 %: 1000 of 1..128, 1..256 and 1..512, 200 of 64..512 and 256..2048, 800 of
# 2..900 even in logarithms.
TILES_CUDA_DOUBLE: TileSeconds = {(64, 64): (5.3e-9, 22.3e-9)}
# Complex tiles make four real products. Lists of 1 ms and more within a tenth; of 1..32 and 1..64
# the measured 83 to 201 us are host time of a bound plan beside 34 to 131 predicted.
TILES_COMPLEX: TileSeconds = {
    (32, 64): (20e-9, 215e-9),
    (32, 32): (17e-9, 148e-9),
    (16, 16): (4.1e-9, 68e-9),
}
TILES_COMPLEX_DOUBLE: TileSeconds = {
    (32, 32): (11.5e-9, 67e-9),
    (16, 16): (4.3e-9, 37e-9),
}

# Tiles of kernels/deep, 64 x 64: seconds of 128 of k on a full device, at most, and bytes a second.
# Both of 500 products of 64 x 64 by 1,000 to 20,000 in bfloat16, 0.370 ms with 24 us for launches
# and adding parts: memory bounds it, and tensor cores alone may take less.
DEEP_STEP = 7.9e-9
DEEP_MEMORY = 4.06e12

# Adapters by rows, each its own matrices: bytes a second of rows that share few of them, and what a
# layer of sorted rows takes at least, mostly of the host.
LORA_READ, LORA_SORTED = 2.5e12, 300e-6

HOPPER_FLOPS = 850e12 / UNITS  # of one multiprocessor's tensor cores, under the power limit
HOPPER_MEMORY = 4.2e12  # bytes that a copy reaches, read and written together
HOPPER_PACKING = 4.0e12  # the same, for the packing pass
HOPPER_LAUNCH = 4e-6  # between two launches
HOPPER_LOADS = 75e9  # bytes into one multiprocessor's shared memory, whoever asked for them
# Lines of 128 bytes that one multiprocessor asks L2 for. Rows that do not begin at 128 bytes have
# each box in twice as many lines: 200 products of 1160^3 took 1.67 times as long as of 1152^3, and
# 1.19 times where two blocks asked for half of what they share (1.15 times the work).
HOPPER_LINES = 0.77e9
# Seconds a tile takes beside its steps, by configuration: stored straight, turned, to unaligned
# rows, and both. Unaligned rows are stored by one warp where a warpgroup has places for only half a
# tile. Turned tiles of 2048 x 256 (k by columns) waited for loads three stages deep, not four.
HOPPER_TILES = {
    "128x256": (1.6e-6, 2.0e-6, 7e-6, 7e-6),
    "128x256 in pairs": (1.6e-6, 1.4e-6, 7e-6, 7e-6),
    "128x256 staged": (2.0e-6, 6.0e-6, 4.4e-6, 6e-6),
    "128x128": (1.7e-6, 1.7e-6, 2.5e-6, 4e-6),
    "64x128 twice": (1.7e-6, 1.7e-6, 2.8e-6, 4e-6),
    "256x160": (3e-6, 3e-6, 3e-6, 3e-6),
    "256x144": (3e-6, 3e-6, 3e-6, 3e-6),
    "128x128 split": (4e-6, 4e-6, 4e-6, 4e-6),
}

# One-bit operations by instruction: on registers, and of 8192 cubed to numbers and to bits.
BITS = {
    "wgmma": (15_528e12, 9_200e12, 11_900e12),
    "mma": (10_092e12, 3_700e12, 4_370e12),
    "popcount": (247e12, 255e12, 253e12),
}
BITS_LAUNCH = 4e-6  # the shortest product, measured in a graph
BITS_MEMORY = 4.0e12

# Chains of 3x3 convolutions as one kernel: its launch and first rows, seconds of a clock of its
# products, and of a row of 64 pixels, and any row, from layer to layer. From 1 -> 16 x 4 -> 4,
# 1 -> 32 x 5 -> 4 and 1 -> 64 x 5 -> 4 channels at 1080 and 360 rows.
CHAIN_LAUNCH = 5e-6
CHAIN_PRODUCT = {"chain": (0.66e-9, 0.66e-9), "chain_mma": (1.65e-9, 1.4e-9)}  # 64 pixels, 128
CHAIN_HANDING = (0.33e-6, 0.09e-6)
# What whole numbers add for 64 pixels of a channel: scaled, divided, limited, rounded. From M.
CHAIN_WHOLE = {"chain": 3.3e-9, "chain_mma": 1.5e-9}
CHAIN_WRITTEN = 2.0e12  # bytes a second that a kernel writes, beside its steps
CHAIN_COPY = 0.28e12  # bytes that torch turns from other strides into planes, a second


@dataclass(frozen=True, slots=True)
class TileRates:
    """What a tile of Triton's convolutions takes: seconds.

    launch, program   of a launch; of a program besides its steps
    step, byte        until a step's loads are there, and for each byte of them
    product, load     of a multiply-add, and of a byte loaded, on a multiprocessor that has enough
    torn              times as long where steps reach from tap to tap
    finish, part      of adding shares up, and for each of a share's sums
    """

    launch: float
    program: float
    step: float
    byte: float
    product: float
    load: float
    torn: float
    finish: float
    part: float

    def scaled(self, multiply: float) -> TileRates:
        """Of multiprocessors that multiply so many times as fast."""
        return replace(self, product=self.product / multiply, load=self.load / multiply)


@dataclass(frozen=True, slots=True)
class LibraryRates:
    """What the vendor's convolutions take.

    launch, apart    seconds of a layer besides its work, and of each pass behind it
    most, each, few  flops a second at most, for each output, and for each input where those are few
    depth            seconds that an element of k keeps those behind it waiting
    turned           times as long where channels come first
    """

    launch: float
    apart: float
    most: float
    each: float
    few: float
    depth: float
    turned: float


# Single convolutions in graphs. Triton's were fitted to 466 tiles of 27 layers in fp16 and 76 of
# nine in fp32, with root mean square errors of 10 and 7 %; the vendor's by hand to the same layers.
CONV_TILES = {
    "float16": TileRates(
        1.24e-6, 1.22e-6, 55.8e-9, 18.5e-12, 0.0, 18.1e-12, 4.2, 1.36e-6, 2.45e-12
    ),
    # Whole numbers, by hand to three layers of M at 1080 rows.
    "int8": TileRates(1.24e-6, 1.22e-6, 55.8e-9, 18.5e-12, 0.0, 60e-12, 25.0, 1.36e-6, 2.45e-12),
    "float32": TileRates(
        2.35e-6, 0.0, 168e-9, 40.6e-12, 4.56e-12, 29.3e-12, 1.4, 1.41e-6, 1.28e-12
    ),
}
CONV_LIBRARY = {
    "float16": LibraryRates(4.2e-6, 2e-6, 460e12, 6e12, 6.5e12, 1.7e-9, 2.2),
    "float32": LibraryRates(3.3e-6, 2e-6, 31e12, 0.7e12, 4e12, 28e-9, 1.5),
}


@dataclass(frozen=True, slots=True)
class WinogradRates:
    """Seconds of a launch, of a block besides its channels, and of each of its channels."""

    launch: float
    block: float
    channel: float


# Of 12 layers of 16 to 512 channels, 7 x 7 to 1080 x 1920: all within a tenth but 16 channels in
# F(4, 3), predicted a sixth too slow, and in F(2, 3), a ninth.
CONV_WINOGRAD = {
    4: WinogradRates(0.5e-6, 9.2e-6, 0.323e-6),
    2: WinogradRates(2e-6, 3.7e-6, 0.26e-6),
}
CONV_MEMORY = 2.5e12  # bytes a second of what they read and write
