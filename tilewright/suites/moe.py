"""Mixture-of-experts layers: one product an expert, as many rows as tokens were routed to it.

Every token is sent to `top` of `experts` experts, each a feed-forward network of its own. Its first
product, gate and up projection side by side, is C[tokens, 2 · inner] = X[tokens, hidden] @ W; that
of the second, down, has the sizes of n and k the other way round. Here: the first product.

Dimensions, from the models' reports and published configurations:

    Mixtral 8x7B      hidden 4096, inner 14336,   8 experts, 2 a token (Jiang et al., 2024)
    Qwen3-30B-A3B     hidden 2048, inner   768, 128 experts, 8 a token (Qwen team, 2025)
    DeepSeek-V3       hidden 7168, inner  2048, 256 experts, 8 a token (DeepSeek-AI, 2024)

`-tp8` cuts every expert's inner dimension into eight, the share of one device in tensor-parallel
serving; `-ep32` keeps every 32nd expert whole, one device's share in expert-parallel serving, the
layout that DeepSeek's report gives for prefill. The whole layers of Mixtral and DeepSeek-V3 have
weights of 3.8 and 30 GB in float32.

How many tokens an expert gets is drawn: popularities from a flat Dirichlet distribution (the most
popular of 8 experts gets about 2.7 times its share, of 256 about 6 times), then every token takes
its `top` experts without repetition, in proportion to popularity. Experts without a token stay in
the batch, with m = 0, as they do in practice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.facts.problem import Column

SOURCE = (
    "dimensions of the published configurations of Mixtral 8x7B, Qwen3-30B-A3B and DeepSeek-V3;"
    " tokens an expert drawn with flat Dirichlet popularities, seeded"
)


@dataclass(frozen=True, slots=True)
class Layer:
    """Dimensions of a layer, tokens routed, and the share of it that one device holds."""

    hidden: int
    inner: int
    experts: int
    top: int
    tokens: int
    tensor_parallel: int = 1
    expert_parallel: int = 1


LAYERS = {
    "moe-mixtral-8x7b": Layer(4096, 14336, 8, 2, 1024),
    "moe-mixtral-8x7b-tp8": Layer(4096, 14336, 8, 2, 1024, tensor_parallel=8),
    "moe-qwen3-30b-a3b": Layer(2048, 768, 128, 8, 1024),
    "moe-deepseek-v3": Layer(7168, 2048, 256, 8, 2048),
    "moe-deepseek-v3-ep32": Layer(7168, 2048, 256, 8, 4096, expert_parallel=32),
}
NAMES = tuple(LAYERS)


def draw(name: str, seed: int) -> tuple[Column, Column, Column]:
    """The columns of one of `NAMES`."""
    layer = LAYERS[name]
    m = routed(layer, seed)[:: layer.expert_parallel]
    n = np.full_like(m, 2 * layer.inner // layer.tensor_parallel)
    return m, n, np.full_like(m, layer.hidden)


def routed(layer: Layer, seed: int) -> Column:
    """How many tokens every expert gets.

    Drawing without repetition in proportion to weights is taking the largest of log(weight) plus
    Gumbel noise (Kool, van Hoof and Welling, 2019).
    """
    random = np.random.default_rng(seed)
    popularity = np.log(random.dirichlet(np.ones(layer.experts)))
    noisy = popularity + random.gumbel(size=(layer.tokens, layer.experts))
    taken = np.argpartition(noisy, -layer.top, axis=1)[:, -layer.top :]
    return np.bincount(taken.ravel(), minlength=layer.experts)
