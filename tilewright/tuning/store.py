"""Measurements on disk: readable JSON, renamed into place: a reader sees a whole file or none.

A damaged or foreign file is set aside with a warning, never trusted and never fatal.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from tilewright import cache_files, settings

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
        cache_files.set_aside(path, f"not a measurement ({error})")
        return {}
    return content


def save(key: str, content: dict[str, Any]) -> None:
    """Store `content` under `key`, replacing what was there."""
    path = _path(key)
    if path is None:
        return
    document = {"format": FORMAT, "key": key, "content": content}
    cache_files.write(path, json.dumps(document, indent=1).encode())


def _path(key: str) -> Path | None:
    folder = settings.cache_folder()
    if folder is None:
        return None
    return folder / "measured" / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"
