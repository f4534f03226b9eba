"""Half-precision (and fp32-accurate) batches on Hopper's tensor cores: TMA, wgmma, one launch.

Why CUDA C++ through NVRTC and not Gluon: tensor maps prebuilt once per plan have no public way into
Gluon 3.6 to 3.9; one launch holds tiles of twelve widths, which needs one instruction each; and
`setmaxnreg` lets the multiplying warps keep 216 registers where ptxas would cap all at 168.

blocks.py   configurations of the kernel          orient.py   which operand gives the rows
records.py  buckets, the records a launch reads   packing.py  items of the packing pass, panels
cost.py     seconds, from measured rates          maps.py     tensor maps
ways.py     which operand gives the rows, tiles of which kind
engine.py   propose: buckets and their choice     bind.py     tables, scratch, launches
split.py    fp32-accurate products: the engine over operands split into halves

Where only the device knows sizes, ragged/ launches the same kernel.
"""

from __future__ import annotations

from tilewright.backends.cuda.hopper.engine import HopperHalf
from tilewright.backends.cuda.hopper.split import HopperSplit
from tilewright.backends.cuda.work import BatchEngine

ENGINES: tuple[BatchEngine, ...] = (HopperHalf(), HopperSplit())
