"""What the stages share that are tables of light, fitted to a film: a picture a core, by itself."""

from __future__ import annotations

from typing import ClassVar

from tilewright.errors import ArgumentError
from tilewright.inputs.devices import host
from tilewright.video.look import Look
from tilewright.video.stages.contract import check_luma, workers_on
from tilewright.video.tables import Key


class Tabled:
    """Base of such stages, frozen records with these two fields.

    amount  of the way, 0 to 1
    keys    what tables are made of at which times; () reads each picture by itself
    """

    __slots__ = ()

    amount: float
    keys: tuple[Key, ...]

    name: ClassVar[str]
    before: ClassVar[int] = 0
    after: ClassVar[int] = 0

    @property
    def workers(self) -> int:
        """A picture a core."""
        return workers_on(host())

    def turned(self, look: Look) -> Look:
        """The same look. Refuses interlaced pictures, and what has no plane of luma."""
        if not 0 <= self.amount <= 1:
            raise ArgumentError(f"{self.name}: amount={self.amount!r}; accepted are 0 to 1")
        check_luma(self.name, look)
        return look

    @property
    def unfitted(self) -> bool:
        """Whether it has yet to know the film."""
        return not self.keys
