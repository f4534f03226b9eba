"""Matrices of the models that bench/muon.py steps: of a transformer of 1B, and of YOLO11n.

The transformer is Llama 3.2 1B (16 layers of width 2048, 8 key and value heads of 64, inner width
8192), its embedding left out as Muon's users leave it. YOLO11n's convolutions are those of its
published description (width 0.25, depth 0.5, 80 classes), flattened to [out, in / groups · k · k].
"""

from __future__ import annotations

from collections.abc import Iterator

Shape = tuple[int, int]


def transformer() -> list[Shape]:
    """112 matrices, 973 million parameters."""
    layer = [(2048, 2048), (512, 2048), (512, 2048), (2048, 2048)]
    return 16 * [*layer, (8192, 2048), (8192, 2048), (2048, 8192)]


def yolo() -> list[Shape]:
    """2.6 million parameters."""
    found = [*_conv(3, 16, 3), *_conv(16, 32, 3), *_csp(32, 64, 0.25)]
    found += [*_conv(64, 64, 3), *_csp(64, 128, 0.25), *_conv(128, 128, 3)]
    found += [*_csp(128, 128, nested=True), *_conv(128, 256, 3), *_csp(256, 256, nested=True)]
    found += [*_conv(256, 128), *_conv(512, 256)]  # pooling of four sizes
    attention = ((256, 256), (256, 256), (128, 256), (128, 128), (128, 256), (256, 128))
    found += [one for sizes in attention for one in _conv(*sizes)] + [(128, 9)]
    found += [*_csp(384, 128), *_csp(256, 64), *_conv(64, 64, 3), *_csp(192, 128)]
    found += [*_conv(128, 128, 3), *_csp(384, 256, nested=True)]
    for width in (64, 128, 256):
        found += [*_conv(width, 64, 3), *_conv(64, 64, 3), *_conv(64, 64)]
        found += [(width, 9), *_conv(width, 80), (80, 9), *_conv(80, 80), *_conv(80, 80)]
    return found


def _conv(inputs: int, outputs: int, size: int = 1) -> Iterator[Shape]:
    yield outputs, inputs * size * size


def _csp(inputs: int, outputs: int, part: float = 0.5, *, nested: bool = False) -> Iterator[Shape]:
    """C3k2 of the description: two halves, one through a bottleneck or three nested ones."""
    width = int(outputs * part)
    yield from _conv(inputs, 2 * width)
    yield from _conv(3 * width, outputs)
    half = width // 2
    if not nested:
        yield from (*_conv(width, half, 3), *_conv(half, width, 3))
        return
    yield from (*_conv(width, half), *_conv(width, half), *_conv(2 * half, width))
    for _ in range(4):
        yield from _conv(half, half, 3)
