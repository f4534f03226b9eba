"""Measurements on disk: readable JSON, renamed into place: a reader sees a whole file or none.

    measured/   curves and ceilings          load(key), save(key, content)
    tuned/      configurations that won      read(folder, name), update(folder, name, change)
    tried/      everything a tuner has seen

A damaged or foreign file is set aside with a warning, never trusted and never fatal. `update`
reads, changes and writes under a lock, so that two processes at once both keep what they found; the
lock falls with the process that holds it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from tilewright import settings
from tilewright.files import cache, locks

FORMAT = "tilewright-measurements-1"
MEASURED, TUNED, TRIED = "measured", "tuned", "tried"
FOLDERS = (MEASURED, TUNED, TRIED)
LOCK = ".lock"
MOST = 16 << 20  # bytes of one document; a tuner's longest night made 1 MB
Content = dict[str, Any]


def load(key: str) -> Content:
    """What was stored under `key`; empty where there is nothing, or nothing to be trusted."""
    return _content(document(MEASURED, digest(key)), key)


def save(key: str, content: Content) -> None:
    """Store `content` under `key`, replacing what was there."""
    path = _path(MEASURED, digest(key))
    if path is not None:
        _write(path, key, content)


def read(folder: str, name: str) -> Content:
    """The document `name` of a folder; empty where there is none, or none to be trusted."""
    return _content(document(folder, name), name)


def update(
    folder: str, name: str, change: Callable[[Content], Content], key: str | None = None
) -> None:
    """Replace a document by `change` of what it holds by now, under its lock.

    `key` is what it is filed under where that is not its name: in measured/.
    """
    path = _path(folder, name)
    if path is None:
        return
    with _locked(path):
        try:
            here = _content(_parsed(path, cache.read(path, MOST)), key or name)
        except OSError as error:  # what is there may be sound: nothing is written over it
            cache.warn_unreadable(path, error)
            return
        _write(path, key or name, change(here))


def document(folder: str, name: str) -> Content:
    """A whole document with its format and key, as `check` takes it; empty where none is sound."""
    path = _path(folder, name)
    return {} if path is None else _parsed(path, cache.read_or_warn(path, MOST))


def names(folder: str, prefix: str = "") -> tuple[str, ...]:
    """Documents of a folder whose names begin with `prefix`."""
    home = settings.cache_part(folder)
    if home is None:
        return ()
    return tuple(sorted(path.stem for path in home.glob(f"{prefix}*.json")))


def set_aside(folder: str, name: str, why: str) -> None:
    """Take a document out of use whose content makes no sense, with a warning."""
    path = _path(folder, name)
    if path is not None:
        cache.set_aside(path, why)


def check(folder: str, name: str, document: Any) -> Content:
    """The content of a document read elsewhere. Raises ValueError where it is not one of ours."""
    key = document["key"]
    if not isinstance(key, str):
        raise ValueError(f"key={key!r} is no text")
    expected = digest(key) if folder == MEASURED else key
    content = document["content"]
    if document["format"] != FORMAT or expected != name or not isinstance(content, dict):
        raise ValueError("it is of another format")
    return dict(content)


def digest(text: str) -> str:
    """A name for a key that is no file name."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _content(whole: Content, key: str) -> Content:
    return dict(whole["content"]) if whole.get("key") == key else {}


def _parsed(path: Path, text: bytes | None) -> Content:
    """A whole document; empty where there is none. One that is none of ours is set aside."""
    if text is None:
        return {}
    try:
        whole: Content = json.loads(text)
        check(path.parent.name, path.stem, whole)
    except (ValueError, KeyError, TypeError, RecursionError, MemoryError) as error:
        cache.set_aside(path, f"not a measurement ({error})")
        return {}
    return whole


def _write(path: Path, key: str, content: Content) -> None:
    document = {"format": FORMAT, "key": key, "content": content}
    cache.write(path, json.dumps(document, indent=1).encode())


def _path(folder: str, name: str) -> Path | None:
    home = settings.cache_part(folder)
    return None if home is None else home / f"{name}.json"


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Alone among processes with the document `path`; unlocked where the folder cannot be written.

    Then nothing can be written either, and the write says so.
    """
    lock: IO[bytes] | None = None
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, exist_ok=True)
        lock = path.with_suffix(LOCK).open("ab")
    if lock is None:
        yield
        return
    with lock:
        with contextlib.suppress(OSError):  # a file system without locks
            locks.hold(lock.fileno())
        yield


def failures(record: dict[str, Any]) -> dict[str, str]:
    """The candidates of a record that failed and are not tried again, whatever the shapes."""
    return {text: why for text, why in record.get("tried", {}).items() if isinstance(why, str)}
