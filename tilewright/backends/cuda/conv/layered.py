"""What engines share that run a chain layer by layer: values between layers, the stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tilewright.backends.cuda.machine.triton_launch import INTERPRETED
from tilewright.engines.conv import Conv, ConvOperands, ConvWork

Launch = Callable[[], None]


def given(
    work: ConvWork, operands: ConvOperands, kinds: Sequence[str]
) -> Iterator[tuple[Conv, Any, Any, Any]]:
    """Each layer with what it reads, writes and adds; between layers new tensors, channels last.

    `kinds`: the element type of each value between two layers.
    """
    import torch

    x, residuals = operands.x, iter(operands.residuals)
    for index, layer in enumerate(work.layers):
        out = operands.out
        if index < len(kinds):
            channels, height, width = work.sizes[index + 1]
            shape, kind = (work.images, height, width, channels), getattr(torch, kinds[index])
            out = torch.empty(shape, dtype=kind, device=x.device).permute(0, 3, 1, 2)
        yield layer, x, out, next(residuals) if layer.adds else None
        x = out


def on_stream(launches: Sequence[Callable[[int], None]], x: Any) -> Launch:
    """All of them, each given a stream, on torch's current stream of the GPU where x lies."""
    import torch

    if ordinal_of(x) == INTERPRETED:

        def interpret() -> None:
            for one in launches:
                one(0)

        return interpret
    ordinal = x.device.index

    def launch() -> None:
        with torch.cuda.device(ordinal):
            stream = torch.cuda.current_stream(ordinal).cuda_stream
            for one in launches:
                one(stream)

    return launch


def ordinal_of(x: Any) -> int:
    """Of the GPU, or what stands for Triton's interpreter."""
    return x.device.index if x.is_cuda else INTERPRETED
