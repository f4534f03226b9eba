"""The layers of `tilewright.onebit.Network` under the name that users know; see `nn/layers/`.

    Sign           real -> bits   x >= cut
    BitConv        bits -> real   scale * dot + shift         or  bits -> bits   dot >= threshold
    RealConv       real -> real   scale * dot + shift, weights stored in half precision
    Affine, Clamp  real -> real
    Add            real, real -> real
    MaxPool        either -> the same
    AveragePool    real -> real   (the whole image where the window is None)
    Flatten        either -> the same, [N, 1, 1, H * W * C] in that order

Vectors are images of one pixel; a dense layer is a convolution with a 1x1 window.
"""

from tilewright.nn.layers.base import Layer
from tilewright.nn.layers.bit_conv import BitConv
from tilewright.nn.layers.conv import RealConv
from tilewright.nn.layers.maps import Add, Affine, Clamp, Flatten, Sign
from tilewright.nn.layers.pools import AveragePool, MaxPool, pooled
from tilewright.nn.value import Value

__all__ = [
    "Add",
    "Affine",
    "AveragePool",
    "BitConv",
    "Clamp",
    "Flatten",
    "Layer",
    "MaxPool",
    "RealConv",
    "Sign",
    "Value",
    "pooled",
]
