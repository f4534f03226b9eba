"""What a page shows runs: every block of code of README.md and docs/, and every name has a place.

A block says what it is: `python` runs alone, as pasted, in a folder that holds the files which the
pages name; `console` is a list of commands, each parsed by the command that it calls, and the quick
ones run; `text` is neither. `<!-- needs: gpu -->` in the line above keeps a block for machines that
have one; elsewhere its names are looked up.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import json
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse
import typer

from bench import processor, tables
from tests.cli.test_cli import invoke
from tests.support import nets
from tests.support.detectors import saying, yolo
from tests.support.films import Making, film
from tilewright.backends.cuda.machine import driver
from tilewright.cli import app

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# These measure for seconds to minutes; each has tests of its own that run it.
SLOW = {"doctor", "peak", "ladder", "roofline", "tune", "grouped", "demo", "profile"}
FENCE = re.compile(r"^(?P<above>[^\n]*)\n```(?P<kind>\w*)\n(?P<code>.*?)^```$", re.M | re.S)


@dataclass(frozen=True)
class Block:
    """A fenced block, and what the line above says that it needs."""

    page: Path
    line: int
    kind: str
    code: str
    needs: str

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def _blocks() -> Iterator[Block]:
    for page in PAGES:
        text = "\n" + page.read_text(encoding="utf-8")
        for found in FENCE.finditer(text):
            line = text.count("\n", 0, found.start("code"))
            needs = re.fullmatch(r"<!-- needs: (\w+) -->", found["above"])
            yield Block(page, line, found["kind"], found["code"], needs[1] if needs else "")


BLOCKS = list(_blocks())
COMMANDS: Any = typer.main.get_command(app)


def of_kind(kind: str) -> list[Any]:
    return [
        pytest.param(block, id=str(block), marks=pytest.mark.gpu if block.needs == "gpu" else ())
        for block in BLOCKS
        if block.kind == kind
    ]


def _upscaler(path: Path) -> None:
    path.write_bytes(nets.model(*nets.upscaler(8, 3, shuffle=True)))


def _network_of_bits(path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="ONNX is not installed")
    from bench.birealnet_model import birealnet18

    onnx.save(birealnet18(classes=10, size=32), str(path))


def _picture(path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 50, 3), np.uint8)).save(path)


def _film(path: Path) -> None:
    if importlib.util.find_spec("av") is not None:
        film(path, Making(codec="libx264", sound=1))


def _plate(path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    image.fromarray(np.random.default_rng(0).integers(0, 255, (48, 64, 3), np.uint8)).save(path)


def _detector(path: Path) -> None:
    if importlib.util.find_spec("onnx") is not None:
        names = "{0: 'person', 1: 'bicycle', 2: 'car'}"
        path.write_bytes(saying(yolo([(32, 32, 9, 9, 0.9, 2)], 3), names=names))


def _values(*shape: int) -> Callable[[Path], None]:
    return lambda path: np.save(path, np.random.default_rng(0).random(shape, np.float32))


# The files that the pages name, small ones.
FILES: dict[str, Callable[[Path], None]] = {
    "upscaler.onnx": _upscaler,
    "model.onnx": _network_of_bits,
    "birealnet18.onnx": _network_of_bits,
    "yolo11n.onnx": _detector,
    "cat.png": _picture,
    "film.mp4": _film,
    "empty.png": _plate,
    "x.npy": _values(1, 1, 24, 32),
    "samples.npy": _values(3, 1, 24, 32),
    "A.npy": lambda path: np.save(path, np.random.default_rng(0).random((30, 20))),
    "B.mtx": lambda path: scipy.io.mmwrite(path, scipy.sparse.random(20, 10, 0.3, random_state=0)),
    "my.csv": lambda path: path.write_bytes(b"100,200,300\n17,33,65\n") and None,
}


@pytest.fixture
def folder(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: empty but for the files that the block names."""
    for name, make in FILES.items():
        if re.search(rf"(?<![\w/.-]){re.escape(name)}", block.code):
            make(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_block_says_what_it_is_and_none_is_only_indented() -> None:
    assert {block.kind for block in BLOCKS} == {"python", "console", "text"}
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert text.count("```") == 2 * sum(block.page == page for block in BLOCKS), page
        indented = re.findall(r"(?:^|\n\n)    [^\n]*", FENCE.sub("", "\n" + text))
        assert indented == [], page


# Libraries of others without which a block of code that names them is skipped.
WANTED = ("torch", "symmray", "cupy")


def skip_without(block: Block) -> None:
    for name in WANTED:
        if name in block.code:
            pytest.importorskip(name, reason=f"{name} is not installed")


@pytest.mark.parametrize("block", of_kind("python"))
def test_a_block_of_python_runs_as_pasted(block: Block, folder: Path) -> None:
    skip_without(block)
    if block.needs == "gpu" and driver.missing() is not None:
        pytest.skip(str(driver.missing()))
    exec(compile(block.code, str(block), "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize("block", of_kind("python"))
def test_names_of_ours_in_a_block_of_python_exist(block: Block) -> None:
    skip_without(block)
    tree = ast.parse(block.code)
    ours: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] == "tilewright":
                    ours[alias.asname or alias.name] = importlib.import_module(alias.name)
        elif isinstance(node, ast.ImportFrom) and str(node.module).startswith("tilewright"):
            module = importlib.import_module(str(node.module))
            for alias in node.names:
                if not hasattr(module, alias.name):
                    importlib.import_module(f"{node.module}.{alias.name}")
                ours[alias.asname or alias.name] = getattr(module, alias.name)
    assert ours
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            owner = ours.get(node.value.id)
            assert owner is None or hasattr(owner, node.attr), ast.unparse(node)


@pytest.mark.parametrize("block", of_kind("console"))
def test_a_block_of_commands_is_understood_and_runs_where_it_is_quick(
    block: Block, folder: Path
) -> None:
    for line in block.code.splitlines():
        words = shlex.split(line, comments=True)
        match words:
            case []:
                pass
            case ["tilewright", *arguments]:
                _understood(arguments)
                if arguments[0] not in SLOW:
                    done = invoke(*arguments)
                    assert done.exit_code == 0, (line, done.stderr)
            case ["python", "-m", module, *_]:
                assert importlib.util.find_spec(module) is not None, line
            case ["python", script, *_]:
                assert (ROOT / script).is_file(), line
            case ["make", target]:
                assert re.search(
                    rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M
                ), line
            case ["pip", "install", *wanted]:
                _installable(wanted[-1])
            case _:
                pytest.fail(f"{block}: no way to check {line!r}")


def _understood(arguments: list[str]) -> None:
    """The command line's own parser takes every word; nothing is run."""
    name, context = "tilewright", None
    command = COMMANDS
    while True:
        context = command.make_context(name, list(arguments), parent=context)
        if not hasattr(command, "resolve_command"):
            return
        rest = [*getattr(context, "_protected_args", ()), *context.args]
        name, command, arguments = command.resolve_command(context, rest)


def _installable(wanted: str) -> None:
    found = re.fullmatch(r"(?P<name>[\w-]+)(\[(?P<extras>[\w,]+)\])?", wanted)
    assert found is not None, wanted
    if found["name"] == "tilewright" and found["extras"]:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        assert set(found["extras"].split(",")) <= set(project["optional-dependencies"])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_rows_of_a_table_stand_together_under_one_head(page: Path) -> None:
    """A row after an empty line is text with bars in it, whatever it looks like in the source."""
    for part in re.split(r"\n\s*\n", FENCE.sub("", "\n" + page.read_text(encoding="utf-8"))):
        rows = [line for line in part.splitlines() if line.startswith("|")]
        assert not rows or (len(rows) > 1 and re.fullmatch(r"[|\s:-]+", rows[1])), rows[0]


# Every public name.

MODULES = (
    "tilewright",
    "tilewright.distributed",
    "tilewright.doors.pyg",
    "tilewright.doors.symmray",
    "tilewright.doors.transformers",
    "tilewright.jax",
    "tilewright.models",
    "tilewright.nn",
    "tilewright.onebit",
    "tilewright.onebit.layers",
    "tilewright.pytorch",
    "tilewright.pytorch.qat",
    "tilewright.suites",
    "tilewright.video",
    "tilewright.errors",
)


# What a module needs beyond NumPy.
NEEDS = {
    "tilewright.distributed": "torch",
    "tilewright.doors.pyg": "torch_geometric",
    "tilewright.doors.symmray": "symmray",
    "tilewright.doors.transformers": "transformers",
    "tilewright.jax": "jax",
    "tilewright.pytorch": "torch",
    "tilewright.pytorch.qat": "torch",
}


def _is_there(module: str) -> bool:
    return module not in NEEDS or importlib.util.find_spec(NEEDS[module]) is not None


def _public() -> Iterator[tuple[str, Any]]:
    for name in filter(_is_there, MODULES):
        module = importlib.import_module(name)
        defined = [n for n, x in vars(module).items() if getattr(x, "__module__", "") == name]
        for one in getattr(module, "__all__", [n for n in defined if not n.startswith("_")]):
            yield f"{name}.{one}", getattr(module, one)


def test_every_public_name_has_a_docstring_of_its_own_and_so_have_its_methods() -> None:
    for name, thing in _public():
        assert thing.__doc__, name
        if not inspect.isclass(thing) or not thing.__module__.startswith("tilewright"):
            continue
        for member, value in vars(thing).items():
            ours = inspect.isroutine(value) or isinstance(value, property)
            if ours and not member.startswith("_"):
                # What it inherits it may leave to its base: `forward` of a torch module, say.
                assert inspect.getdoc(getattr(thing, member)), f"{name}.{member}"


def test_every_public_name_has_its_line_in_the_list_of_names() -> None:
    page = (ROOT / "docs/names.md").read_text(encoding="utf-8")
    missing = [name for name, _ in _public() if f"| `{name}`" not in page]
    assert missing == []
    for name in re.findall(r"^\| `([\w.]+)`", page, re.M):
        module, _, attribute = name.rpartition(".")
        if _is_there(module):
            assert hasattr(importlib.import_module(module), attribute), name


def test_what_the_list_says_that_objects_of_networks_have_is_there() -> None:
    page = (ROOT / "docs/names.md").read_text(encoding="utf-8")
    part = page[page.index("## tilewright.nn") : page.index("## tilewright.onebit")]
    module = importlib.import_module("tilewright.nn")
    rows = re.findall(r"^\| ([A-Z]\w+) \| (.+) \|$", part, re.M)
    assert {name for name, _ in rows} >= {"Network", "Bound", "Input", "Row", "BoundStep"}
    for name, has in rows:
        for member in re.findall(r"`(\w+)`", has):
            assert hasattr(getattr(module, name), member), f"{name}.{member}"


# Tables.


def test_the_tables_of_the_pages_are_those_of_the_stored_results() -> None:
    for page in PAGES:
        assert tables.filled(page.read_text(encoding="utf-8")) == page.read_text(
            encoding="utf-8"
        ), page


def test_every_result_says_where_it_comes_from() -> None:
    for path in sorted((ROOT / "bench/results").glob("*.json")):
        facts = json.loads(path.read_text(encoding="utf-8"))["environment"]
        assert {"date", "commit", "versions", "device"} <= set(facts), path.name
        assert facts["versions"]["numpy"], path.name
        assert {"name", "driver", "platform"} <= set(facts["device"]), path.name


def test_every_step_of_all_figures_is_a_command_with_a_module() -> None:
    for command in processor.steps("opencl:intel", tuned=True).values():
        module, *arguments = command
        assert importlib.util.find_spec(module) is not None
        if module == "tilewright":
            _understood(arguments)
