"""Behind `tilewright cache`: what lies in the cache, and measurements as a file for other machines.

A file that is imported is checked document by document before anything is written. What both sides
know is merged: of two winners the one with the better ratio, of candidates all, of curves the ones
that are here already.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tilewright import settings
from tilewright.errors import CacheError, FileError
from tilewright.files import reading
from tilewright.tuning import store, tuned
from tilewright.tuning.store import FOLDERS, MEASURED, TRIED, TUNED, Content

FORMAT = "tilewright-export-1"
MOST = 32 << 20  # bytes of an export; a year of tuning makes 1 MB
# Folders of every part; what an older version of the sources left is its part too.
_PLACES = {
    "programs": "programs",
    "nvrtc": "nvrtc",
    "numba": "numba-*",
    "weights": "weights",
    "drivers": "vendors-*",
    **{name: name for name in FOLDERS},
}
_LASTING = ("programs", "nvrtc", "weights", *FOLDERS)  # folders that stay when they are empty
PARTS = tuple(_PLACES)
_ACCEPTED = "accepted is what `tilewright cache export` writes"


@dataclass(frozen=True, slots=True)
class Part:
    """One kind of thing in the cache: files and their bytes."""

    name: str
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Winner:
    """A tuned configuration as `info` shows it; `ratio` is its time over the default's."""

    kernel: str
    architecture: str
    driver: str
    record: str
    config: str
    ratio: float


def home() -> Path:
    """The cache folder. Raises CacheError where there is none."""
    folder = settings.cache_folder()
    if folder is None:
        raise CacheError(settings.why_no_cache())
    return folder


def parts() -> tuple[Part, ...]:
    """Every part of the cache."""
    return tuple(
        Part(name, len(files), sum(path.stat().st_size for path in files))
        for name in PARTS
        for files in [list(_files(name))]
    )


def winners() -> tuple[Winner, ...]:
    """Every tuned configuration."""
    found = []
    for name in store.names(TUNED):
        content = store.read(TUNED, name)
        for record, values in sorted(dict(content.get("records", {})).items()):
            with contextlib.suppress(KeyError, TypeError, ValueError):
                config = tuned.config_from_json(values["config"])
                kernel, where, driver = (
                    str(content[key]) for key in ("kernel", "architecture", "driver")
                )
                ratio = float(values["ratio"])
                found.append(Winner(kernel, where, driver, record, str(config), ratio))
    return tuple(found)


def clear(names: tuple[str, ...]) -> int:
    """Remove these parts with what was set aside in them; how many files that were."""
    removed = 0
    for name in names:
        for path in list(_files(name)):
            with contextlib.suppress(FileNotFoundError):  # another process was first
                path.unlink()
                removed += 1
        if name not in _LASTING:
            _remove_empty(home().glob(_PLACES[name]))
    tuned.forget()
    return removed


def export() -> Content:
    """Every measurement as one document of plain JSON types; programs stay, they are compiled."""
    home()
    documents = {
        folder: {
            name: found for name in store.names(folder) if (found := store.document(folder, name))
        }
        for folder in FOLDERS
    }
    return {"format": FORMAT, "documents": documents}


def import_file(path: Path) -> int:
    """Merge an exported file into the store; how many documents it held.

    Raises FileError, before anything is written, where the file is not wholly an export.
    """
    home()
    documents = _checked(path)
    for folder, name, document in documents:
        store.update(folder, name, partial(_merged, folder, document["content"]), document["key"])
    tuned.forget()
    return len(documents)


def _checked(path: Path) -> list[tuple[str, str, Content]]:
    label = f"FILE={str(path)!r}"
    try:
        document = reading.document(path, MOST)
        if document["format"] != FORMAT:
            raise ValueError("it is of another format")
        return [
            (folder, name, _sound(folder, name, one))
            for folder in FOLDERS
            for name, one in document["documents"].get(folder, {}).items()
        ]
    except OSError as error:
        raise FileError(f"{label}: cannot be read ({error.strerror}); {_ACCEPTED}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FileError(f"{label}: not an export ({error}); {_ACCEPTED}") from None


def _sound(folder: str, name: str, document: Any) -> Content:
    """The exported document, which may come from anywhere, if it is sound."""
    if not name or not all(letter.isalnum() or letter in "-_" for letter in name):
        raise ValueError(f"{name!r} is no name of a document")
    content = store.check(folder, name, document)
    if folder == TUNED:
        for record in content["records"].values():
            tuned.config_from_json(record["config"])
            tuned.ratio_from_json(record)
    if folder == TRIED:
        for record in content["records"].values():
            if not isinstance(record.get("tried", {}), dict):
                raise ValueError(f"tried={record['tried']!r}")
    return dict(document)


def _merged(folder: str, new: Content, here: Content) -> Content:
    if folder == MEASURED or not isinstance(here.get("records", {}), dict):
        return here or new
    records = dict(here.get("records", {}))
    for key, value in new["records"].items():
        if folder == TUNED:
            records[key] = min(records.get(key), value, key=_ratio)
        else:
            records[key] = _joined(value, records.get(key))
    return {**new, "records": records}


def _ratio(record: Any) -> float:
    try:
        tuned.config_from_json(record["config"])
        tuned.ratio_from_json(record)
        return float(record["ratio"])
    except (KeyError, TypeError, ValueError):
        return math.inf


def _joined(new: Content, here: Any) -> Content:
    """Candidates of both sides; times only where both were taken on the same shapes."""
    if not isinstance(here, dict) or not isinstance(here.get("tried", {}), dict):
        return new
    same = new.get("shapes") == here.get("shapes")
    tried = new.get("tried", {}) if same else store.failures(new)
    return {**here, "tried": {**tried, **here.get("tried", {})}}


def _files(name: str) -> Iterator[Path]:
    """All but locks: a lock that was removed would be held by one process and made by another."""
    return (
        path
        for folder in home().glob(_PLACES[name])
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != store.LOCK
    )


def _remove_empty(folders: Iterable[Path]) -> None:
    """Folders below these and themselves; one that another process has filled again stays."""
    for folder in folders:
        inner = sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True)
        for path in (*inner, folder):
            with contextlib.suppress(OSError):
                path.rmdir()
