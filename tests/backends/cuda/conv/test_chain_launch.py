"""How chains read and write memory: planes of eight channels, strides, pairs; on the host."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.conv_chains import chain
from tests.support.triton_proof import CUDA_H200
from tilewright.backends.cuda.conv import chain_launch, chain_plan
from tilewright.backends.cuda.conv.chain import CHAIN

torch: Any = pytest.importorskip("torch")
H200 = CHAIN.machine(CUDA_H200)


def test_planes_hold_eight_channels_side_by_side_and_zeros_behind_the_last() -> None:
    work = chain((20, 32, 8), (2, 5, 7))
    x = torch.arange(2 * 20 * 5 * 7).reshape(2, 20, 5, 7).half()
    planes = chain_launch.planes(work, 20, x)
    planes.copy_(x)
    assert tuple(planes.tensor.shape) == chain_launch.planes_shape(work, 20) == (2, 5, 3, 7, 8)
    for channel in range(20):
        found = planes.tensor[:, :, channel // 8, :, channel % 8]
        assert torch.equal(found, x[:, channel])
    assert not planes.tensor[:, :, 2, :, 4:].any()
    at = planes.strides
    flat = planes.tensor.flatten()
    where = at.image + 2 * at.channel + 3 * at.row + 4 * at.column + 1
    assert flat[where] == x[1, 17, 3, 4]


def test_pictures_whose_channels_lie_side_by_side_are_read_as_they_are() -> None:
    x = torch.zeros(2, 16, 5, 7).half()
    last = x.contiguous(memory_format=torch.channels_last)
    assert chain_launch.readable(last)
    assert not chain_launch.readable(x)
    assert not chain_launch.readable(last[:, :12])
    assert not chain_launch.readable(last[:, 4:])
    assert chain_launch.readable(last[:, 8:])
    assert chain_launch.readable(last[:, :, 1:, 2:])


@pytest.mark.parametrize(
    ("shuffle", "memory", "width", "paired"),
    [
        (2, "contiguous_format", 7, True),
        (2, "channels_last", 7, True),  # of one channel both are the same
        (1, "channels_last", 7, True),
        (1, "contiguous_format", 7, False),
        (1, "channels_last", 8, True),
    ],
)
def test_neighbouring_outputs_are_stored_as_one_word_where_they_lie_so(
    shuffle: int, memory: str, width: int, paired: bool
) -> None:
    work = chain((1, 16, 4), (1, 5, width), shuffle=shuffle)
    (part,) = chain_plan.cut(work, H200)
    out = torch.zeros(1, *work.sizes[-1]).half()
    out = out.contiguous(memory_format=getattr(torch, memory))
    assert chain_launch.paired(out, part) is paired
    assert not chain_launch.paired(torch.zeros(out.numel() + 1).half()[1:].view(out.shape), part)
