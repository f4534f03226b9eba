"""An .npz of arrays and a header of JSON: how every network lies in a file.

    header    uint8: JSON in UTF-8, with `format` and `version`
    others    arrays that the header names

A file is read with distrust: sizes by files/npz.py, and whatever is wrong is one error.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.errors import FileError, TilewrightError
from tilewright.files.npz import read_arrays, write_arrays
from tilewright.files.whole import path_of
from tilewright.wording import in_one_line

DTYPES = ("|b1", "|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f2", "<f4", "<f8")
Made = TypeVar("Made")


def write(path: str | Path, header: Mapping[str, Any], arrays: Mapping[str, NDArray]) -> None:
    """A whole file or none. Raises FileError where the folder is absent or cannot be written."""
    target = path_of(path)
    if target.suffix.lower() != ".npz":
        raise FileError(f"path={str(path)!r}: suffix {target.suffix!r}; accepted is .npz")
    text = json.dumps(header, separators=(",", ":"), allow_nan=False).encode()
    write_arrays(target, {"header": np.frombuffer(text, np.uint8), **arrays}, "path", DTYPES)


def read(
    path: str | Path, maker: str, make: Callable[[dict[str, Any], dict[str, NDArray]], Made]
) -> Made:
    """What `make` makes of a header and the arrays beside it; nothing is unpickled.

    Args:
        path: an .npz.
        maker: the command that writes such files.
        make: raises any of the errors of a header that is not as it should be.

    Raises FileError naming what is wrong with the file.
    """
    label = f"path={str(path)!r}"
    arrays = read_arrays(path_of(path), "path", DTYPES, f"`{maker}`")
    text = arrays.pop("header", None)
    if text is None or text.dtype != np.uint8:
        raise FileError(f"{label}: no network, but arrays; `{maker}` makes one")
    try:
        return make(json.loads(text.tobytes()), arrays)
    except TilewrightError as error:
        raise FileError(f"{label}: {error}") from None
    except KeyError as error:
        raise FileError(f"{label}: {error.args[0]!r} is missing") from None
    except (ValueError, TypeError, AttributeError, RecursionError, MemoryError) as error:
        raise FileError(f"{label}: its header is damaged ({in_one_line(error)})") from None
