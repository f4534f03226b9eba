"""What a run has done so far: a folder beside the output, with a recipe and a file a chunk.

    film.mp4.parts/recipe.json   the source's mark, stages, coding, versions: all that decides bits
                   survey.json   what was seen of the source, where a stage had to know the film
                   00000.chunk   written under another name, renamed when whole

The same line run again finds its own recipe and goes on; another finds another's and begins anew.
The folder goes when the film has its name.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tilewright.errors import FileError
from tilewright.files import locks
from tilewright.files.whole import write_json
from tilewright.video import chunk
from tilewright.video.source import Film
from tilewright.wording import PATH, short

_NOTES = ("recipe.json", "survey.json")
WORKERS = "workers"  # a folder of what processes at it need meanwhile
_WRITTEN = ("*.chunk", "*.part", "whole.*", ".tilewright-*", *_NOTES, WORKERS, "lock")
_MARKED = 1 << 20  # bytes of a source's two ends that its mark is made of


def mark(path: Path) -> dict[str, Any]:
    """What tells a source from another, or from itself after a change."""
    with path.open("rb") as file:
        size = path.stat().st_size
        found = hashlib.sha256(file.read(_MARKED))
        file.seek(max(0, size - _MARKED))
        found.update(file.read(_MARKED))
    return {"bytes": size, "sha256": found.hexdigest()}


def mark_of(film: Film) -> dict[str, Any]:
    """The same of all that was read of a film: an end may stay where the middle changes."""
    return mark(film.path) | {"packets": film.digest}


def folder_of(out: Path) -> Path:
    """Where the parts of an output lie meanwhile."""
    return out.with_name(f"{out.name}.parts")


class Journal:
    """The chunks of one film. Made by `begun`."""

    def __init__(self, folder: Path, known: Mapping[str, Any]) -> None:
        self.folder, self.recipe = folder, known

    def path(self, number: int) -> Path:
        """Where a chunk lies, or will."""
        return self.folder / f"{number:05d}.chunk"

    def done(self, count: int) -> dict[int, chunk.Head]:
        """The chunks that are there, whole."""
        heads = ((number, chunk.head_of(self.path(number))) for number in range(count))
        return {number: head for number, head in heads if head is not None}

    def removed(self) -> None:
        """Forget all of it."""
        _removed(self.folder)


def recalled(out: Path) -> dict[str, Any]:
    """The recipe of a run that did not end; {} where there is none."""
    with suppress(OSError, ValueError, RecursionError):
        found = json.loads((folder_of(out) / "recipe.json").read_text(encoding="utf-8"))
        return found if isinstance(found, dict) else {}
    return {}


@contextmanager
def begun(out: Path, recipe: Mapping[str, Any]) -> Iterator[Journal]:
    """The journal of an output, with the chunks of an earlier run of the same recipe.

    Raises FileError where another process is at the same output, or the folder cannot be written.
    """
    folder = folder_of(out)
    handle = _entered(folder, out)
    try:
        if recalled(out) != recipe:
            for old in folder.glob("*.chunk"):
                old.unlink(missing_ok=True)
            write_json(folder / "recipe.json", recipe, "out")
        yield Journal(folder, recipe)
    finally:
        if folder.is_dir() and not any(folder.glob("*.chunk")):  # nothing to go on from
            _removed(folder)
        os.close(handle)


def _entered(folder: Path, out: Path) -> int:
    """The folder's lock, held by this process alone. Raises FileError as `begun` does."""
    while True:
        try:
            folder.mkdir(exist_ok=True)
            handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise FileError(
                f"out={short(str(out), PATH)}: its parts cannot be written ({error.strerror});"
                " accepted is a file name in a folder that exists and can be written"
            ) from None
        try:
            _locked(handle, out)
            if _is_there(handle, folder / "lock"):
                return handle
        except FileError:
            os.close(handle)
            raise
        os.close(handle)  # whoever was here went, and took the folder along


def _is_there(handle: int, path: Path) -> bool:
    """Whether an open file still has its name."""
    with suppress(OSError):
        return os.path.samestat(os.fstat(handle), path.stat())
    return False


def _removed(folder: Path) -> None:
    """Take away what is written here, and the folder where nobody keeps anything else in it."""
    for name in _WRITTEN:
        for path in folder.glob(name):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
    with suppress(OSError):
        folder.rmdir()


def _locked(handle: int, out: Path) -> None:
    """Hold the folder for this process; the system lets go of it when that ends, however."""
    if not locks.try_hold(handle):
        raise FileError(
            f"out={short(str(out), PATH)}: another process writes it; accepted is another name"
        )
