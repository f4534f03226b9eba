"""Exported measurements, merged into a store of their own, and the store's own documents."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hypothesis import strategies as st

from fuzz.harness import Target, main
from fuzz.inputs import json_text
from tilewright.tuning import exchange, store

_TUNED = {
    "kernel": "panel",
    "architecture": "opencl|cpu|Two Cores",
    "driver": "1",
    "records": {
        "float32 float32 rows-rows large": {"config": {"micro_m": 6}, "ratio": 0.8, "ratios": [0.8]}
    },
}
_TRIED = {"records": {"float32 float32 rows-rows large": {"shapes": [1], "tried": {"a": [1.0]}}}}
_CURVES = {"float32": {"host": [[1e6, 1e-3]], "curves": {"panel": [[1e6, 1e-3]]}, "bandwidth": 1e9}}


def _document(key: str, content: object) -> dict[str, object]:
    return {"format": store.FORMAT, "key": key, "content": content}


_EXPORT = {
    "format": exchange.FORMAT,
    "documents": {
        "measured": {store.digest("key"): _document("key", _CURVES)},
        "tuned": {"panel-0": _document("panel-0", _TUNED)},
        "tried": {"panel-0": _document("panel-0", _TRIED)},
    },
}


@contextmanager
def own_cache(name: str) -> Iterator[Path]:
    """A cache of this input alone."""
    before = os.environ.get("TILEWRIGHT_CACHE")
    folder = Path(tempfile.gettempdir(), f"fuzz-{name}-{os.getpid()}")
    os.environ["TILEWRIGHT_CACHE"] = str(folder)
    folder.mkdir(mode=0o700, exist_ok=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
        if before is None:
            del os.environ["TILEWRIGHT_CACHE"]
        else:
            os.environ["TILEWRIGHT_CACHE"] = before


def merged(path: Path) -> object:
    """What `tilewright cache import` does, twice, and then `cache info`."""
    with own_cache("import"):
        exchange.import_file(path)
        exchange.import_file(path)
        return exchange.winners(), exchange.export()


def kept(path: Path) -> object:
    """The file as a document of the cache, in each of its folders; nothing there is an error."""
    with own_cache("store") as home:
        for folder, name in (("measured", store.digest("key")), ("tuned", "panel-0")):
            (home / folder).mkdir(mode=0o700)
            shutil.copyfile(path, home / folder / f"{name}.json")
            (home / folder / f"{name}.json").chmod(0o600)
        found = store.load("key"), exchange.winners(), exchange.export()
        store.update(store.TUNED, "panel-0", lambda here: {**here, "more": 1})
        return found


TARGET = Target("tuned", ".json", json_text(_EXPORT), merged)
STORE = Target(
    "store",
    ".json",
    st.one_of(json_text(_document("key", _CURVES)), json_text(_document("panel-0", _TUNED))),
    kept,
    (),
)

if __name__ == "__main__":
    main(TARGET, STORE)
