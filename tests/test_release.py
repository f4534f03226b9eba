"""A release works where nothing else is: what is built holds every file and needs what it names.

The wheel is made from the source archive, as packagers do it, and runs beside those packages alone
that it declares, found through their own records.
"""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

import tilewright

pytest.importorskip("hatchling.build")
ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
BUILD = "import hatchling.build as b, sys; print(getattr(b, sys.argv[1])(sys.argv[2]))"
RUNS = """
import sys
sys.path.append({home!r})
import numpy as np, tilewright as tw
assert tw.__file__.startswith({home!r}), tw.__file__
a, b = np.ones((4, 5), np.float32), np.ones((5, 6), np.float32)
assert (tw.matmul(a, b) == 5).all() and (tw.grouped_matmul([a], [b])[0] == 5).all()
assert "host" in str(tw.explain(a, b))
import tilewright.cli.devices, tilewright.cli.ladder
"""


def _built(kind: str, folder: Path, into: Path) -> Path:
    done = subprocess.run(
        [sys.executable, "-c", BUILD, f"build_{kind}", str(into)],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return into / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _built("sdist", ROOT, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def wheel(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made from what the source archive holds."""
    folder = tmp_path_factory.mktemp("source")
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    (source,) = folder.iterdir()
    return _built("wheel", source, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def told(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as file:
        (name,) = (one for one in file.namelist() if one.endswith(".dist-info/METADATA"))
        return Parser().parsestr(file.read(name).decode())


def test_the_wheel_holds_every_file_of_the_package_and_none_beside_it(wheel: Path) -> None:
    """Kernels, weights, rules and cards among them."""
    with zipfile.ZipFile(wheel) as file:
        held = {one for one in file.namelist() if ".dist-info/" not in one}
    package = ROOT / "tilewright"
    there = {
        path.relative_to(ROOT).as_posix()
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert held == there
    assert {Path(one).suffix for one in held} >= {".py", ".cl", ".cu", ".cuh", ".npz", ".toml"}


def _declared(name: str, seen: set[str]) -> Iterator[importlib.metadata.Distribution]:
    """A distribution and all that it needs without extras."""
    if name.lower() in seen:
        return
    seen.add(name.lower())
    found = importlib.metadata.distribution(name)
    yield found
    for line in found.requires or ():
        needed = Requirement(line)
        if needed.marker is None or needed.marker.evaluate({"extra": ""}):
            yield from _declared(needed.name, seen)


def test_the_wheel_runs_beside_nothing_but_what_it_declares(wheel: Path, tmp_path: Path) -> None:
    home = tmp_path / "site"
    with zipfile.ZipFile(wheel) as file:
        file.extractall(home)
    seen: set[str] = set()
    for line in PROJECT["dependencies"]:
        for found in _declared(Requirement(line).name, seen):
            for entry in {path.parts[0] for path in found.files or () if path.parts[0] != ".."}:
                place, link = Path(str(found.locate_file(entry))), home / entry
                if place.exists() and not link.exists() and entry != "__pycache__":
                    link.symlink_to(place)
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", RUNS.format(home=str(home))],
        env={"TILEWRIGHT_CACHE": str(tmp_path / "cache"), "PATH": "", "HOME": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_the_extra_of_all_is_every_other_but_the_developers(told: Message) -> None:
    extras = set(told.get_all("Provides-Extra") or ())
    alone = {"all", "dev", "docs"}
    (every,) = PROJECT["optional-dependencies"]["all"]
    assert Requirement(every).extras == extras - alone


def test_the_page_of_an_index_has_whole_addresses(told: Message) -> None:
    """Links of the README that stay within it may stay."""
    page = str(told.get_payload())
    targets = re.findall(r"\]\(([^)\s]+)\)", page)
    assert len(targets) > 10
    assert [one for one in targets if not re.match(r"https?:|#", one)] == []
    version = f"/v{tilewright.__version__}/"
    source = PROJECT["urls"]["Source"].removeprefix("https://github.com")
    for target in targets:
        if source in target:
            assert version in target
            assert (ROOT / target.partition(version)[2].partition("#")[0]).exists()


def test_every_place_names_one_version_and_one_source() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert cited["version"] == tilewright.__version__
    assert cited["repository-code"] == PROJECT["urls"]["Source"]
    assert cited["license"] == PROJECT["license"]


@pytest.mark.parametrize(
    "path", sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml")), ids=lambda path: path.stem
)
def test_a_form_asks_what_a_report_needs(path: Path) -> None:
    form = yaml.safe_load(path.read_text(encoding="utf-8"))
    if path.stem == "config":
        assert form["contact_links"]
        return
    assert {"name", "description", "body"} <= set(form)
    ids = [field["id"] for field in form["body"]]
    assert len(ids) == len(set(ids)) >= 3
    assert any(field.get("validations", {}).get("required") for field in form["body"])
