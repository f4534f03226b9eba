"""Torch's private names: each is there in the torch at hand, or a sentence says what is lost."""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path

import pytest

from tilewright.arrays import torch_private

NAMES = {name: at for name, at in vars(torch_private).items() if isinstance(at, attrgetter)}


def path_of(name: str) -> str:
    (path,) = NAMES[name].__reduce__()[1]
    return str(path)


@pytest.mark.parametrize("name", NAMES)
def test_this_torch_has_the_private_name(name: str) -> None:
    torch = pytest.importorskip("torch")
    path = path_of(name)
    if "_cuda" in path and not torch.backends.cuda.is_built():
        pytest.skip(f"torch {torch.__version__} is built without GPUs")
    try:
        NAMES[name](torch)
    except AttributeError:
        pytest.fail(f"torch {torch.__version__} has no torch.{path}, which tilewright calls {name}")


def test_no_name_stands_twice() -> None:
    paths = [path_of(name) for name in NAMES]
    assert len(set(paths)) == len(paths) > 15


def test_no_other_file_calls_them() -> None:
    root = Path(torch_private.__file__).parents[1]
    others = [path for path in root.rglob("*.py") if path != Path(torch_private.__file__)]
    assert [path.name for path in others if "torch._C" in path.read_text(encoding="utf-8")] == []
