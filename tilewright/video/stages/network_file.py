"""What tells a network's file that a stage was given from another, for the journal's recipe."""

from __future__ import annotations

import hashlib
from pathlib import Path

from tilewright.errors import ArgumentError
from tilewright.wording import PATH, short


def mark_of(path: Path, argument: str) -> str:
    """The digest of a file. Raises ArgumentError, naming the argument, where it cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise ArgumentError(
            f"{argument}={short(str(path), PATH)}: cannot be read ({error.strerror}); accepted are"
            " .onnx and .npz"
        ) from None
