"""Engines of convolutions on the host: `engines.choose.choose` asks them in this order.

Each takes a `ConvWork` and, bound, is called without arguments; Numba compiles them on first use.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.backends.host.conv_chain import WinogradChain
from tilewright.backends.host.conv_dilated import Dilated
from tilewright.backends.host.conv_direct import SINGLE_ENGINES
from tilewright.backends.host.conv_expand import ExpandDepthwise
from tilewright.backends.host.conv_whole import WHOLE_ENGINES
from tilewright.backends.host.conv_winograd import Winograd
from tilewright.engines.contract import Engine
from tilewright.engines.conv import ConvOperands, ConvWork

ConvEngine = Engine[ConvWork, ConvOperands, Callable[[], None]]
CONV_ENGINES: tuple[ConvEngine, ...] = (
    WinogradChain(),
    Winograd(),
    ExpandDepthwise(),
    Dilated(),
    *SINGLE_ENGINES,
    *WHOLE_ENGINES,
)
