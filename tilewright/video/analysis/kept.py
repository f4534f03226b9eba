"""A survey beside the parts of a film being made: a run that goes on need not look again."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tilewright.files.whole import write_json
from tilewright.version import __version__
from tilewright.video.analysis.record import Survey, of_plain
from tilewright.video.analysis.survey import surveyed
from tilewright.video.journal import folder_of, mark_of
from tilewright.video.source import Film

_NAME = "survey.json"


def kept_or_new(
    film: Film, out: Path, progress: Callable[[int, int], None] | None = None
) -> Survey:
    """What an earlier run for this output saw of this film; else it is looked at now."""
    with suppress(OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        found = json.loads((folder_of(out) / _NAME).read_text(encoding="utf-8"))
        if found["source"] == mark_of(film) and found["version"] == __version__:
            return of_plain(found["survey"])
    return surveyed(film, progress)


def keep(folder: Path, film: Film, survey: Survey) -> None:
    """Write it down among the parts."""
    known = {"source": mark_of(film), "version": __version__, "survey": survey.plain()}
    write_json(folder / _NAME, known, "out")
