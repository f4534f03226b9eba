"""The layers of `tilewright.onebit.Network` under the name that users know; see `nn/layers.py`."""

from tilewright.nn.layers import (
    Add,
    Affine,
    AveragePool,
    BitConv,
    Clamp,
    Flatten,
    Layer,
    MaxPool,
    RealConv,
    Sign,
    Value,
    pooled,
)

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
