"""How the work of motion is cut for a device: pure, by what its driver says.

A processor's work-items are few and take long pieces: rows of a picture, whole patches, slices of
what lands. A GPU's are many: a sample, eight of them, a row of a patch. Groups of patches have 64
work-items, fewer where a device, or its compiler for this kernel, allows fewer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilewright.facts.device import Device
from tilewright.planning.film import SIDE

_BANDS = 8  # patches of a group on GPUs: with eight work-items each, a wave of 64
_SLICES = 8  # of what lands, for each way, at most: each has a copy of the sums
_GROUP = 64  # samples beside each other


@dataclass(frozen=True, slots=True)
class Cut:
    """What kernels are compiled with.

    lanes   work-items a patch: 1, or 8 with a row each
    band    rows of patches in a block of `searched`, and patches of a group of `tried`
    tile    columns of patches in a block
    group   work-items of a group that take a sample each, a power of two
    slices  copies of what lands, for each way; 0 for one copy and atomic additions
    """

    lanes: int
    band: int
    tile: int
    group: int
    slices: int

    @property
    def items(self) -> int:
        """Work-items of a group of patches."""
        return self.lanes * self.band if self.lanes > 1 else 1

    @property
    def long(self) -> bool:
        """Whether a work-item takes whole rows, as on processors."""
        return self.slices > 0

    def within(self, limit: int) -> Cut:
        """The same with at most so many work-items in a group of patches."""
        band = _power(limit // self.lanes)
        return replace(self, band=band) if band else replace(self, lanes=1, band=4)


def cut_of(device: Device) -> Cut:
    """How a device gets its work."""
    largest = max(1, min(device.max_work_group, device.max_work_item_sizes[0]))
    group = _power(min(largest, _GROUP))
    if device.kind == "cpu":
        slices = max(1, min(device.compute_units // 2, _SLICES))
        return Cut(lanes=1, band=4, tile=16, group=group, slices=slices)
    return Cut(SIDE, _BANDS, 8, group, 0).within(min(largest, SIDE * _BANDS))


def _power(most: int) -> int:
    """The largest power of two up to `most`; 0 where there is none."""
    return 1 << (most.bit_length() - 1) if most > 0 else 0
