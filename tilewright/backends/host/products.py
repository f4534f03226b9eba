"""Engines of a network's products on the host: NumPy's BLAS, and tiles that keep B packed.

    blas    every matrix with every other, all element types of NumPy; the epilogue in passes
    tiles   float32 by a packed matrix: rows of A are pixels, so that the kernels of convolutions of
            1 x 1 take them; bias and activation end each tile. B is packed once where it is known
            beforehand, else in each run (products_packed.py)

A product by `tiles` is a step of the program that its neighbours run in (`program.py`): no thread
is woken for it. What BLAS does between two such steps costs leaving the program and coming back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.backends.host import compiled, products_packed, rates
from tilewright.backends.host.backend import multiply
from tilewright.backends.host.conv_bind import Layout, bound
from tilewright.backends.host.conv_direct import START, Direct, Pointwise
from tilewright.engines.conv import Activation, Conv, ConvOperands, ConvWork, Format
from tilewright.engines.product import ProductEngine, ProductOperands, ProductWork
from tilewright.facts.device import Device
from tilewright.facts.scalars import Scalars
from tilewright.facts.verdict import Proposal

# Seconds until a product of NumPy's runs; and what it costs where its own threads do it, from so
# many products of numbers on, which wait busily for the next while our threads want the cores: the
# step behind one took 0.7 to 2 ms instead of 0.15.
_CALL, _THREADS, _LARGE = 2e-5, 5e-4, 1 << 18
_EACH = 1.5e-6  # of every further one of a stack
_PASS = 2.0  # bytes that a pass of the epilogue moves, times those of C
_GELU = 2.1e-8  # seconds of a core for the exact gelu of one element
_PIXELS = 14  # rows of a tile


class Blas:
    """`blas`: numpy.matmul, then what is added, the bias, the activation."""

    name = "blas"

    def why_not(self, work: ProductWork, device: Device) -> str | None:
        """NumPy's own real types."""
        if work.dtype not in device.dtypes:
            return f"dtype={work.dtype!r}: takes {', '.join(device.dtypes)}"
        return None

    def propose(self, work: ProductWork, device: Device) -> Proposal:
        """Arithmetic at the BLAS's rate, memory's at its own, a pass for each end."""
        found = rates.of(device)
        cores, (m, n, k) = device.compute_units, work.sizes
        wide = 2.0 if work.dtype == "float64" else 1.0
        elements = float(work.count * m * n)
        passes = work.bias + (work.activation == "relu") + 2.0 * (work.activation == "gelu")
        passes += (work.beta != 0) + (work.alpha != 1)
        seconds = _CALL + _EACH * (work.count - 1)
        seconds += _THREADS * (cores > 1 and m * n * k > _LARGE)
        seconds += max(wide * work.flops / found.blas, work.bytes / found.move / cores)
        seconds += passes * _PASS * 4.0 * elements / found.move
        seconds += _GELU * elements * (work.activation == "gelu")
        reason = f"{work.flops / 1e6:.3g} MFLOP by NumPy's BLAS, {found.blas_origin}"
        return Proposal(self.name, device, seconds, reason, decisions=work)

    def bind(self, proposal: Proposal, operands: ProductOperands) -> Callable[[], None]:
        """A call of NumPy's into the planned memory."""
        work: ProductWork = proposal.decisions
        scalars = Scalars(work.alpha, work.beta)

        def launch() -> None:
            if operands.added is not None:
                np.copyto(operands.out, operands.added)
            with np.errstate(all="ignore"):
                a, b, out = operands.a, operands.b, operands.out
                multiply(a, b, out, scalars, operands.bias, work.activation)

        return launch


@dataclass(frozen=True, slots=True)
class _Decided:
    """How the rows are cut, and the convolution that they are, without its numbers."""

    work: ProductWork
    conv: ConvWork
    layout: Layout


class Tiles:
    """`tiles`: rows of A by a matrix that is packed when the product is bound."""

    name = "tiles"

    def why_not(self, work: ProductWork, device: Device) -> str | None:
        """float32 by one matrix known before, rows one after another, nothing but a bias added."""
        if not compiled.available():
            return compiled.why_none()
        if work.dtype != "float32":
            return f"dtype={work.dtype!r}: computes float32"
        if work.beta:
            return "adds a bias alone"
        return None if _is_packed_once(work) else products_packed.why_not(work)

    def propose(self, work: ProductWork, device: Device) -> Proposal:
        """As the convolution that it is."""
        conv = _as_conv(work)
        engine = Direct() if conv.height * conv.width < _PIXELS else Pointwise()
        found = engine.propose(conv, device)
        decided = _Decided(work, conv, found.decisions.layout)
        found = replace(found, engine=self.name, decisions=decided)
        if _is_packed_once(work) or found.seconds is None:
            return found
        cores, each = device.compute_units, found.seconds - START
        factor = rates.of(device).factor
        seconds = START + products_packed.seconds(work, cores, each / factor) * factor
        reason = f"B packed in each run; {found.reason}"
        scratch = found.scratch + products_packed.packed_bytes(work)
        return replace(found, seconds=seconds, reason=reason, scratch=scratch)

    def bind(self, proposal: Proposal, operands: ProductOperands) -> Callable[[], None]:
        """B packed, everything by address."""
        decided: _Decided = proposal.decisions
        cores, seconds = proposal.device.compute_units, proposal.seconds or 0.0
        if not _is_packed_once(decided.work):
            layer = replace(decided.conv.layers[0], bias=operands.bias)
            conv = replace(decided.conv, layers=(layer,))
            how = (operands, cores, seconds)
            return products_packed.bound(decided.work, conv, decided.layout, *how)
        weights, (_, n, k) = operands.b, decided.work.sizes
        weights = (weights.reshape(-1, k, n)[0] if weights.size else weights).T
        if decided.work.alpha != 1:
            weights = weights * np.float32(decided.work.alpha)
        layer = replace(
            decided.conv.layers[0],
            weights=np.ascontiguousarray(weights)[:, :, None, None],
            bias=operands.bias,
        )
        conv = replace(decided.conv, layers=(layer,))
        x, out = (_pixels(one, conv) for one in (operands.a, operands.out))
        return bound(conv, decided.layout, ConvOperands(x, out), cores, seconds)


def _is_packed_once(work: ProductWork) -> bool:
    """Whether one matrix B that is known serves all rows of A, which follow each other."""
    return work.fixed and work.b.is_one and work.a.is_whole and work.c.is_whole


def _as_conv(work: ProductWork) -> ConvWork:
    """Rows as pixels of one picture, channels last; its weights hold nothing yet."""
    m, n, k = work.sizes
    rows = m * work.count // products_packed.products(work)
    nothing = np.broadcast_to(np.float32(0), (n, k, 1, 1))
    bias = np.broadcast_to(np.float32(0), (n,)) if work.bias else None
    layer = Conv(nothing, bias, activation=Activation(work.activation))
    high = 2 if rows < _PIXELS and rows % 2 == 0 else 1  # tiles of few rows are two pixels high
    last: Format = "channels_last"
    return ConvWork((layer,), 1, high, rows // high, "float32", True, last, last)


def _pixels(rows: NDArray, conv: ConvWork) -> NDArray:
    """Rows without gaps as that picture."""
    high, wide = conv.height, conv.width
    return rows.reshape(1, high, wide, rows.shape[-1]).transpose(0, 3, 1, 2)


PRODUCT_ENGINES: tuple[ProductEngine, ...] = (Tiles(), Blas())
