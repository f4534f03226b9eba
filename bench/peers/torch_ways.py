"""What a user of PyTorch writes today for a batch of unlike products.

loop         torch.mm one after another
graph        the same loop, captured once in a CUDA graph
padded bmm   everything padded with zeros to the largest m, n and k; padding not timed
grouped_mm   torch._grouped_mm: rows ragged by group, weights [groups, k, n]; halves, 16 bytes
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

MOST_PADDED = 24 * 2**30  # bytes of the padded operands; past this the way is left out


def loop(a: Sequence[Any], b: Sequence[Any], c: Sequence[Any]) -> Callable[[], None]:
    """One call a product, results written in place."""
    import torch

    triples = list(zip(a, b, c, strict=True))

    def call() -> None:
        for x, y, z in triples:
            torch.mm(x, y, out=z)

    return call


def graph(way: Callable[[], None]) -> Callable[[], None]:
    """The launches of a way, captured once and replayed."""
    import torch

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        way()
    torch.cuda.current_stream().wait_stream(stream)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        way()

    def replay(held: Callable[[], None] = way) -> None:
        captured.replay()  # reads and writes what `held` keeps alive

    return replay


def padded_bmm(a: Sequence[Any], b: Sequence[Any]) -> Callable[[], None] | None:
    """One bmm of the padded batch, or None where padding takes too much memory."""
    import torch

    m = max(x.shape[0] for x in a)
    n, k = max(y.shape[1] for y in b), max(x.shape[1] for x in a)
    if len(a) * (m * k + k * n + m * n) * a[0].element_size() > MOST_PADDED:
        return None
    like = {"dtype": a[0].dtype, "device": a[0].device}
    left = torch.zeros(len(a), m, k, **like)
    right = torch.zeros(len(a), k, n, **like)
    for i, (x, y) in enumerate(zip(a, b, strict=True)):
        left[i, : x.shape[0], : x.shape[1]] = x
        right[i, : y.shape[0], : y.shape[1]] = y
    out = torch.empty(len(a), m, n, **like)
    return lambda: torch.bmm(left, right, out=out)


def grouped_mm(x: Any, w: Any, ends: Any) -> Callable[[], None] | None:
    """torch._grouped_mm(x, w, offs=ends), or None where it refuses."""
    import torch

    if not hasattr(torch, "_grouped_mm"):
        return None

    def call() -> None:
        torch._grouped_mm(x, w, offs=ends)

    try:
        call()
    except RuntimeError:
        return None
    return call
