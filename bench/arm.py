"""Cortex-A55, A76, X2 and Neoverse V1 by model: shares of their peak, and Bi-Real-Net-18's time.

    python -m bench.arm [--output FILE.json]

No such core is at hand. Inner loops are LLVM's for each core, their cycles llvm-mca's
(`arm_loops.py`); how often each runs follows from the sizes of the network's layers. What neither
loop nor tile is, results on their way to memory, pools and means, is counted by hand in
instructions. One core, everything in the first cache: memory's share is not in it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.arm_loops import (
    CORES,
    Core,
    assembly,
    code_of,
    count,
    cycles,
    each,
    levels_of,
    tool,
)
from bench.environment import RESULTS, environment
from tilewright.inputs.devices import host

# Instructions of vectors for 128 bits of a one-bit product: exclusive or, count, addition.
LEAST = {"cnt": 3, "fmla": 1, "sdot": 1, "bfdot": 1}
# Devices that Bolt's report of its version 0.2 names, clocks in GHz, and its milliseconds there;
# the best that Bolt published of each core.
DEVICES = (
    ("cortex-a55", "Kirin 990", 1.86, 75.5),
    ("cortex-a55", "Kirin 810", 1.88, 78.4),
    ("cortex-a76", "Kirin 990", 2.86, 19.7),
    ("cortex-a76", "Kirin 810", 2.27, 25.9),
    ("cortex-x2", "Snapdragon 8 Gen 1", 3.0, None),
    ("neoverse-v1", "Graviton3", 2.6, None),
)
BEST = {"cortex-a55": 70.9, "cortex-a76": 17.0}
_STAGES = ((64, 56), (128, 28), (256, 14), (512, 7))  # channels, height and width
_BLOCKS = 4
# Of sixteen results of a convolution by bits: dot product, scale, shift, shortcut, sign.
_END_VECTORS, _END_MOVES = 40, 28


def tiles_of(core: Core) -> dict[str, str]:
    """The instruction that each tile's products are made of; bfloat16 where none does is float32
    in halves of words."""
    tiles = {"products": "cnt", "windows": "cnt", "sums": "fmla", "grouped": "fmla"}
    tiles |= {"whole": "sdot", "bytes": "sdot"}
    return tiles | {"brains": "bfdot" if "bf16" in core.features else "fmla"}


@dataclass(frozen=True, slots=True)
class Conv:
    """A convolution: taps of a window (words of 64 bits, or floats), pixels, channels."""

    taps: int
    pixels: int
    channels: int


def of_bits() -> Iterator[Conv]:
    """The sixteen 3x3 convolutions by bits."""
    for stage, (channels, size) in enumerate(_STAGES):
        for block in range(_BLOCKS):
            inputs = channels // 2 if stage and not block else channels
            yield Conv(9 * inputs // 64, size * size, channels)


def of_reals() -> Iterator[Conv]:
    """The first, three shortcuts, and the dense layer, whose 1,000 channels are 32 times 32."""
    yield Conv(7 * 7 * 3, 112 * 112, 64)
    for channels, size in _STAGES[1:]:
        yield Conv(channels // 2, size * size, channels)
    yield Conv(512, 1, 1024)


def bit_cycles(core: Core) -> float:
    """Of all convolutions by bits: tiles of 4 pixels by 32 channels, of blocks of 2 by 8; what is
    in the loop over blocks once for each, what is outside of it once a tile.

    Of a block's, a last word of its own is counted where there is one.
    """
    one = each(core, "windows", "cnt")
    block, rest = _around(core, "windows", "cnt")
    last = count(block, "cnt") * one
    of_block, of_tile = cycles(block, core), cycles(rest, core)
    total = 0.0
    for conv in of_bits():
        tiles = -(-conv.pixels // 4) * conv.channels // 32
        pairs, odd = divmod(conv.taps, 2)
        own = pairs * 2 * 8 * one + of_block - (0 if odd else last)
        total += tiles * (8 * own + of_tile)
    return total


def _around(core: Core, tile: str, instruction: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Of a tile's instructions: those of the loop around its inner one, and all outside of that."""
    _, near, *far = levels_of(assembly(core.name, core.features)[tile], instruction)
    return near, tuple(said for level in far for said in level)


def real_cycles(core: Core) -> float:
    """Of all convolutions of reals: tiles of 6 pixels by 32 channels, in two halves; all else once
    a tile where both halves have a loop of their own, or twice where they share one."""
    one = each(core, "sums", "fmla")
    code = code_of(assembly(core.name, core.features)["sums"])
    rest = cycles(code.rest, core) * 2 / len(code.loops)
    return sum(
        -(-conv.pixels // 6) * conv.channels // 32 * (conv.taps * 48 * one + rest)
        for conv in of_reals()
    )


def other_cycles(core: Core) -> float:
    """By hand: results on their way, a pool of 3x3, means of 2x2."""
    results = sum(conv.pixels * conv.channels for conv in (*of_bits(), *of_reals()))
    vectors, moves = _END_VECTORS / core.units, _END_MOVES / 2
    ends = results / 16 * (vectors + moves if core.in_order else max(vectors, moves))
    pooled = 56 * 56 * 64 / 4 * 9 * 3
    means = sum(size * size * channels / 2 / 4 * 5 for channels, size in _STAGES[1:])
    return ends + (pooled + means) / core.units


def figures() -> dict[str, Any]:
    """Shares of peaks by core and tile; milliseconds by device."""
    there = tool()
    if there is None:
        raise SystemExit("bench.arm: there is no llvm-mca that knows these cores")
    parts = {
        core.name: {
            "bits": bit_cycles(core),
            "reals": real_cycles(core),
            "others": other_cycles(core),
        }
        for core in CORES
    }
    return {
        "environment": environment(host()),
        "modelled": "modelled, not run",
        "llvm_mca": there[0],
        "cores": [_core(core) for core in CORES],
        "networks": [
            {
                "core": core,
                "device": device,
                "ghz": clock,
                "ms": {name: spent / clock / 1e6 for name, spent in parts[core].items()},
                "bolt_ms": bolt,
                "bolt_best_ms": BEST.get(core),
            }
            for core, device, clock, bolt in DEVICES
        ],
    }


def _core(core: Core) -> dict[str, Any]:
    tiles = tiles_of(core)
    found = {tile: each(core, tile, one) for tile, one in tiles.items()}
    return {
        "name": core.name,
        "model": core.model,
        "units": core.units,
        "cycles": found,
        "shares": {tile: LEAST[tiles[tile]] / core.units / spent for tile, spent in found.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=RESULTS / "arm-modelled.json")
    output = parser.parse_args().output
    result = figures()
    output.write_text(json.dumps(result, indent=1) + "\n")
    for row in result["networks"]:
        print(row["core"], row["device"], f"{sum(row['ms'].values()):.1f} ms modelled, not run")
    print(f"written: {output}")


if __name__ == "__main__":
    main()
