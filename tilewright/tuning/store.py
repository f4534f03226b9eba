"""Measurements on disk: readable JSON, renamed into place: a reader sees a whole file or none.

A damaged or foreign file is set aside with a warning, never trusted and never fatal.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

from tilewright import settings
from tilewright.errors import CacheWarning

FORMAT = "tilewright-measurements-1"


def load(key: str) -> dict[str, Any]:
    """What was stored under `key`; empty where there is nothing, or nothing to be trusted."""
    path = _path(key)
    if path is None or not path.is_file():
        return {}
    try:
        document = json.loads(path.read_text())
        if document["format"] != FORMAT or document["key"] != key:
            raise ValueError("it is of another format")
        content: dict[str, Any] = dict(document["content"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        _set_aside(path, str(error))
        return {}
    return content


def save(key: str, content: dict[str, Any]) -> None:
    """Store `content` under `key`, replacing what was there."""
    path = _path(key)
    if path is None:
        return
    document = {"format": FORMAT, "key": key, "content": content}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(descriptor, "w") as file:
            json.dump(document, file, indent=1)
        Path(name).replace(path)
    except OSError as error:
        warnings.warn(
            f"cache file {path}: cannot be written ({error.strerror}); it will be measured again",
            CacheWarning,
            stacklevel=2,
        )


def _path(key: str) -> Path | None:
    folder = settings.cache_folder()
    if folder is None:
        return None
    return folder / "measured" / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"


def _set_aside(path: Path, why: str) -> None:
    aside = path.with_suffix(".damaged")
    with contextlib.suppress(OSError):  # another process was first, or the folder is read-only
        path.replace(aside)
    warnings.warn(
        f"cache file {path}: not a measurement ({why}); set aside as {aside.name}",
        CacheWarning,
        stacklevel=2,
    )
