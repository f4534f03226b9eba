"""docs/environment.md is settings.py in words: no variable more, none less, each accepted value."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import tilewright
from tilewright import settings
from tilewright.errors import CacheError, TilewrightError

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "environment.md").read_text(encoding="utf-8")
ROWS = {
    cells[1].strip(" `"): [cell.strip() for cell in cells[2:-1]]
    for line in PAGE.split("## The cache")[0].splitlines()
    if (cells := line.split("|"))[0] == "" and len(cells) == 6 and "TILEWRIGHT_" in cells[1]
}


def test_the_page_lists_the_variables_that_are_read_and_no_others() -> None:
    source = Path(settings.__file__).read_text(encoding="utf-8")
    read = set(re.findall(r'(?:environ\.get\(|: Any = )"(\w+)"', source))
    assert set(ROWS) == {name for name in read if name.startswith("TILEWRIGHT_")}
    assert set(re.findall(r"TILEWRIGHT_\w+", PAGE)) == set(ROWS)
    assert set(re.findall(r"^(TILEWRIGHT_\w+)", str(settings.__doc__), re.M)) == set(ROWS)


def test_no_other_module_or_page_knows_a_variable_that_the_page_lacks() -> None:
    places = [*(ROOT / "tilewright").rglob("*.py"), *ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]
    named = {
        name
        for path in places
        for name in re.findall(r"TILEWRIGHT_[A-Z]+", path.read_text(encoding="utf-8"))
    }
    assert named == set(ROWS)


@pytest.mark.parametrize("way", settings.MEMORY_WAYS)
def test_every_way_of_memory_is_on_the_page_and_works(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert f"`{way}`" in ROWS["TILEWRIGHT_MEMORY"][1]
    assert f"`{settings.MEMORY_WAYS[0]}`" == ROWS["TILEWRIGHT_MEMORY"][2]
    monkeypatch.setenv("TILEWRIGHT_MEMORY", way)
    assert tilewright.asarray(np.ones(3)).shape == (3,)


def test_each_variable_is_read_when_it_is_needed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TILEWRIGHT_DEVICE", "host")
    assert "host" in tilewright.explain(np.ones((3, 3)), np.ones((3, 3)))
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "one"))
    assert settings.cache_folder() == tmp_path / "one"
    monkeypatch.setenv("TILEWRIGHT_CACHE", settings.OFF)
    assert settings.cache_folder() is None


def everything_that_reads() -> None:
    tilewright.asarray(np.ones(3), device=None)
    tilewright.matmul(np.ones((3, 3)), np.ones((3, 3)))
    settings.cache_folder()


@pytest.mark.parametrize("name", ROWS)
def test_what_is_not_accepted_is_an_error_that_names_the_variable(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "/dev/null/nonsense")
    with pytest.raises(TilewrightError, match=f"{name}=.*nonsense") as caught:
        everything_that_reads()
    assert isinstance(caught.value, CacheError) == (name == "TILEWRIGHT_CACHE")


def test_an_empty_variable_is_one_that_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    before = settings.memory()
    for name in ("TILEWRIGHT_DEVICE", "TILEWRIGHT_MEMORY"):
        monkeypatch.setenv(name, "")
    assert (settings.device(), settings.memory()) == (None, before)
