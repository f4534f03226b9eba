"""Runs the Triton engine of convolutions in Triton's interpreter, on the host, over these cases.

TRITON_INTERPRET=1 python -m tests.support.interpreter conv_proof
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from tests.support import conv_chains
from tests.support.conv_chains import layer
from tests.support.triton_proof import CUDA_H200
from tilewright.backends.cuda.conv.tiles import Tile
from tilewright.backends.cuda.conv.triton import TritonConv
from tilewright.backends.cuda.conv.triton_launches import prepared
from tilewright.engines.conv import (
    ACTIVATIONS,
    Activation,
    Conv,
    ConvOperands,
    ConvWork,
    Format,
    Whole,
)

NUMBERS = {"leaky": (0.1, 0.0), "clip": (-0.3, 0.6), "hard_sigmoid": (0.2, 0.5)}


def _activations() -> list[ConvWork]:
    slopes = np.linspace(-1, 1, 6, dtype=np.float32)
    rng = np.random.default_rng(3)
    made = (
        Activation(kind, *NUMBERS.get(kind, (0.0, 0.0)), slopes if kind == "prelu" else None)
        for kind in ACTIVATIONS
    )
    return [ConvWork((layer(rng, 5, 6, activation=one),), 1, 5, 6, "float32") for one in made]


def _shapes(last: Any) -> list[ConvWork]:
    rng = np.random.default_rng(4)

    def one(inputs: int, outputs: int, size: tuple[int, int, int], **facts: Any) -> ConvWork:
        single: Conv = layer(rng, inputs, outputs, **facts)
        return ConvWork((single,), *size, "float32", source=last, result=last)

    return [
        one(3, 16, (2, 9, 7), kernel=(5, 3), strides=(2, 1), pads=(0, 1, 2, 0)),
        one(32, 20, (1, 6, 9), dilations=(1, 2), pads=(1, 2, 1, 2)),
        one(64, 130, (1, 4, 5), kernel=(1, 1), pads=(0, 0, 0, 0)),
        one(8, 12, (1, 6, 7), groups=4),
        one(20, 20, (2, 6, 7), groups=20, kernel=(3, 5), pads=(1, 2, 1, 2)),
        one(6, 12, (1, 5, 6), groups=6),
        one(20, 20, (2, 9, 11), groups=20, kernel=(9, 11), pads=(0, 0, 0, 0)),
        one(
            40,
            40,
            (2, 5, 9),
            groups=40,
            kernel=(8, 9),
            pads=(6, 8, 7, 9),
            strides=(2, 1),
            dilations=(1, 2),
            adds=True,
            activation=Activation("relu"),
        ),
        one(2, 2, (1, 3, 70), groups=2, kernel=(1, 65), pads=(0, 3, 0, 2)),
        one(4, 18, (1, 5, 6), shuffle=3),
        one(4, 8, (2, 5, 6), adds=True, shuffle=2, activation=Activation("relu")),
    ]


def _chains() -> list[ConvWork]:
    sizes = (1, 9, 11)
    return [
        conv_chains.chain((1, 16, 16, 4), sizes, "float32", shuffle=2),
        conv_chains.rounded(conv_chains.chain((3, 32, 8), sizes, "float16")),
    ]


def _shared() -> list[tuple[ConvWork, Tile]]:
    """Layers whose k other programs share, more of them than there are steps too."""
    slopes = np.linspace(-1, 1, 40, dtype=np.float32)
    rng = np.random.default_rng(6)
    made = [
        (
            layer(rng, 32, 40, activation=Activation("prelu", slopes=slopes)),
            Tile(16, 16, 16, 4, 1, 4),
        ),
        (layer(rng, 5, 8, adds=True, shuffle=2), Tile(16, 16, 32, 4, 1, 3)),
        (layer(rng, 16, 12, groups=2, strides=(2, 1)), Tile(16, 16, 16, 4, 1, 2)),
    ]
    return [(ConvWork((one,), 2, 5, 7, "float32"), tile) for one, tile in made]


CASES = {
    "activations": _activations(),
    "channels_first": _shapes("channels_first"),
    "channels_last": _shapes("channels_last"),
    "chains": _chains(),
}
SHARED = _shared()


def proven(work: ConvWork, where: str = "cpu") -> None:
    """Bound, run into NaN, compared with float64."""
    x, out, added = conv_chains.drawn(work)
    x, out, residuals = x.to(where), out.to(where), tuple(one.to(where) for one in added)
    engine = TritonConv()
    assert engine.why_not(work, CUDA_H200) is None
    engine.bind(engine.propose(work, CUDA_H200), ConvOperands(x, out, residuals))()
    allowed = 1e-6 if work.dtype == "float32" else 1e-3
    error = conv_chains.error(out, conv_chains.reference(work, x, residuals))
    assert error < allowed, f"{work}: {error}"


def shared(work: ConvWork, tile: Tile, where: str = "cpu") -> None:
    """The same of one layer with a tile of its own."""
    x, out, added = conv_chains.drawn(work)
    x, out, residuals = x.to(where), out.to(where), tuple(one.to(where) for one in added)
    launches = prepared(work.layers[0], tile, x, out, *(residuals or (None,)))
    assert len(launches) == 2
    for launch in launches:
        launch(torch.cuda.current_stream().cuda_stream if x.is_cuda else 0)
    error = conv_chains.error(out, conv_chains.reference(work, x, residuals))
    assert error < 1e-6, f"{work}, {tile}: {error}"


def wholes() -> list[tuple[ConvWork, int]]:
    """Layers and chains of whole numbers, and shares of k."""
    rng = np.random.default_rng(8)
    size = (2, 6, 7)

    def one(
        inputs: int,
        outputs: int,
        facts: Whole,
        splits: int = 1,
        memory: Format = "channels_last",
        **more: Any,
    ) -> tuple[ConvWork, int]:
        made = conv_chains.whole_layer(rng, inputs, outputs, facts, **more)
        return ConvWork((made,), *size, facts.source, source=memory, result=memory), splits

    step, every = {"step": 0.02, "shift": 120, "dtype": "uint8"}, np.float32(1e-4)
    found = [
        one(5, 20, Whole(128, every, 0.0, **step)),
        one(1, 18, Whole(3, every, taken=0.0123, **step), kernel=(5, 3)),
        one(32, 18, Whole(-5, every, low=-0.3, high=0.6, source="int8"), strides=(2, 1)),
        one(64, 40, Whole(0, every, step=0.03, shift=-7, dtype="int8"), 3, kernel=(1, 1)),
        one(8, 16, Whole(255, every, **step), 2, groups=2, pads=(0, 1, 2, 0)),
        one(40, 40, Whole(77, every, **step), groups=40, dilations=(2, 1)),
        one(
            40,
            40,
            Whole(77, every * 0.2, **step),
            groups=40,
            kernel=(8, 9),
            pads=(5, 4, 3, 6),
            strides=(1, 2),
        ),
        one(4, 16, Whole(17, every), memory="channels_first", shuffle=2),
    ]
    layers = [one(3, 12, Whole(9, every, taken=0.01, **step))[0].layers[0]]
    layers += [one(12, 24, Whole(120, every, **step))[0].layers[0]]
    layers += [one(24, 4, Whole(120, every), shuffle=2)[0].layers[0]]
    return [*found, (ConvWork(tuple(layers), *size, "uint8"), 1)]


def proven_whole(work: ConvWork, splits: int, where: str = "cpu") -> None:
    """Bound, run into other numbers, the same bits as the definition."""
    x = conv_chains.drawn_whole(work)
    wanted = conv_chains.whole_reference(work, x)
    kind = getattr(torch, work.result_dtype)
    out = conv_chains.laid(torch.full(wanted.shape, 99).to(where, kind), work.result)
    given = conv_chains.laid(torch.from_numpy(x).to(where), work.source)
    engine = TritonConv()
    assert engine.why_not(work, CUDA_H200) is None
    proposal = engine.propose(work, CUDA_H200)
    tiles = tuple(replace(tile, splits=splits) for tile in proposal.decisions.tiles)
    decisions = replace(proposal.decisions, tiles=tiles)
    engine.bind(replace(proposal, decisions=decisions), ConvOperands(given, out))()
    np.testing.assert_array_equal(out.cpu().numpy(), wanted, str(work.layers[0].whole))


def main() -> None:
    for work, splits in wholes():
        proven_whole(work, splits)
    print(f"wholes: {len(wholes())} right")
    for work, tile in SHARED:
        shared(work, tile)
    print(f"shared: {len(SHARED)} right")
    for name, works in CASES.items():
        for work in works:
            proven(work)
        print(f"{name}: {len(works)} right")
