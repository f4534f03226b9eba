"""What a gate makes of rows that a kernel has multiplied: a launch of its own."""

from __future__ import annotations

from typing import Any

from tilewright.backends.cuda.machine.triton_launch import Task, reusable
from tilewright.backends.cuda.ragged.plan import ordinal_of
from tilewright.backends.cuda.ragged.triton import sum_type
from tilewright.facts.gates import Gate

_ELEMENTS, _WIDE = 4096, 512  # that a program makes, and how many of them lie in a row


class Gating:
    """For h and results [rows, n] that lie alike, of any number of rows."""

    def __init__(self, gate: Gate, h: Any, out: Any, offsets: Any) -> None:
        """`offsets` are the ends of all groups: rows past the last are left alone."""
        from tilewright.backends.cuda.kernels.triton.moe import activate

        n = out.shape[1]
        wide = min(1 << max(n - 1, 1).bit_length(), _WIDE)
        self._high, self._across = _ELEMENTS // wide, -(-n // wide)
        constants = {"FORM": gate.form, "KIND": gate.kind, "SUM": sum_type(h)}
        constants |= {"HIGH": self._high, "WIDE": wide}
        task = Task(activate, 1, (h, out, offsets[-1:], n), constants, {})
        self._launch = reusable(task, ordinal_of(h))

    def launch(self, stream: int, h: Any, out: Any, offsets: Any) -> None:
        """Write `out`."""
        programs = -(-out.shape[0] // self._high) * self._across
        self._launch(stream, programs, h, out, offsets[-1:])
