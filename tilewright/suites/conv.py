"""Convolutions of ResNet-50 lowered to products, one problem a layer.

The 53 convolutions of He, Zhang, Ren and Sun, "Deep Residual Learning for Image Recognition"
(2016), table 1: a 7 x 7 stem of stride 2, then 3, 4, 6 and 3 bottlenecks of 1 x 1, 3 x 3 and
1 x 1 filters, with a 1 x 1 projection beside the first of each stage. Stages after the first halve
the image in their first 1 x 1 filters, as in the paper (later code does so in the 3 x 3 ones).

    conv-resnet50                    C[out, pixels] = W[out, in · height · width] @ patches
    conv-resnet50-weight-gradients   dW[out, in · height · width] = dC[out, pixels] @ patches^T

A forward pass runs layer after layer, so its batch of all layers is a list of shapes rather than
one launch; the weight gradients really are independent once the backward pass has left its trace.
Seed 0 is one image of 224 x 224; another seed draws a side that is a multiple of 32, 160 to 384.
"""

from __future__ import annotations

import numpy as np

from tilewright.facts.problem import Column

SOURCE = "layers of ResNet-50 (He et al., 2016), table 1, lowered to products for one image"
NAMES = ("conv-resnet50", "conv-resnet50-weight-gradients")

# Blocks, and width of their 1 x 1 and 3 x 3 filters; four times that comes out.
STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))


def draw(name: str, seed: int) -> tuple[Column, Column, Column]:
    """The columns of one of `NAMES`."""
    side = 224 if seed == 0 else int(np.random.default_rng(seed).integers(5, 13)) * 32
    out, pixels, depth = np.array(layers(side)).T
    return (out, pixels, depth) if name == "conv-resnet50" else (out, depth, pixels)


def layers(side: int) -> list[tuple[int, int, int]]:
    """(filters, pixels of the result, weights a filter) of every convolution, in network order."""
    found = [(64, (side // 2) ** 2, 3 * 7 * 7)]
    channels, side = 64, side // 4
    for stage, (blocks, width) in enumerate(STAGES):
        if stage:
            side //= 2
        for block in range(blocks):
            if block == 0:
                found.append((4 * width, side**2, channels))
            found += [
                (width, side**2, channels),
                (width, side**2, 9 * width),
                (4 * width, side**2, width),
            ]
            channels = 4 * width
    return found
