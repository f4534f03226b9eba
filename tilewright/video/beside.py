"""A second film of the same line, beside the first: opacity, made before the pictures are.

It has a journal of its own. When it is whole and the first film is not yet, its folder keeps a
note, by which the same line knows that it made the file that is there:

    alpha.mkv.parts/beside.json   the recipe, and the mark of the file that was there before, if any
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tilewright.files.whole import write_json
from tilewright.video.job import Job
from tilewright.video.journal import folder_of, mark
from tilewright.video.making import planned, recipe_of
from tilewright.video.stages.contract import Stage

_NAME = "beside.json"


def planned_beside(
    source: Path, target: Path, stages: Sequence[Stage], *, overwrite: bool
) -> Job | None:
    """What is to be made; None where an earlier run of the same line made it. Raises as `planned`.

    The stages have seen the film.
    """
    told = _told(target)
    if told is not None and target.exists():
        job = planned(source, target, stages, overwrite=True)
        if told.get("recipe") == recipe_of(job) and mark(target) != told.get("before"):
            return None
    return planned(source, target, stages, overwrite=overwrite)


def begin(job: Job) -> None:
    """Note that this line makes the file."""
    folder = folder_of(job.out)
    folder.mkdir(exist_ok=True)
    before = mark(job.out) if job.out.exists() else None
    write_json(folder / _NAME, {"recipe": recipe_of(job), "before": before}, "out")


def end(target: Path) -> None:
    """Both films are there: forget it."""
    with suppress(OSError):
        (folder_of(target) / _NAME).unlink()
        folder_of(target).rmdir()


def _told(target: Path) -> dict[str, Any] | None:
    with suppress(OSError, ValueError, RecursionError):
        found = json.loads((folder_of(target) / _NAME).read_text(encoding="utf-8"))
        return found if isinstance(found, dict) else None
    return None
