"""The plan of the house, held: which way imports go, one stem a kernel, small files."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import tomllib
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import tilewright
from tilewright.backends.opencl import kernels

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "tilewright"
MODULES = sorted(
    path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__")
    for path in PACKAGE.rglob("*.py")
)


def path_of(module: str) -> Path:
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def imports(module: str, *, deferred: bool = True) -> Iterator[str]:
    """The project's modules that a module imports; `deferred` counts those inside functions too."""
    tree = ast.parse(path_of(module).read_text())
    nodes = ast.walk(tree) if deferred else tree.body
    for node in nodes:
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: imports are absolute"
            base = str(node.module)
            names = [f"{base}.{alias.name}" for alias in node.names]
            names = [name if name in MODULES else base for name in names]
        else:
            continue
        yield from (name for name in names if name.partition(".")[0] == "tilewright")


def within(module: str, parts: tuple[str, ...]) -> bool:
    return any(module == part or module.startswith(f"{part}.") for part in parts)


def parts(*names: str) -> tuple[str, ...]:
    return tuple(f"tilewright.{name}" for name in names)


RECORDS = parts("batch", "ceilings", "device", "errors", "kernel", "remember")
# The layers of DESIGN.md, section 1: each may import what is listed, and itself.
LAYERS = {
    parts("errors"): (),
    parts("remember"): (),
    parts("ceilings"): (),
    parts("device"): parts("ceilings"),
    parts("batch"): (),
    parts("kernel"): parts("batch", "device"),
    parts("settings", "cache_files", "whole_files", "trust"): parts("errors", "remember"),
    parts("operands"): parts("device", "errors"),
    parts("planning"): (*RECORDS, *parts("columns")),
    parts("backends"): (*RECORDS, *parts("settings", "cache_files", "operands", "columns")),
    parts("backends.opencl.kernels"): (*RECORDS, *parts("backends.opencl")),
    parts("tuning"): (
        *RECORDS,
        *parts("settings", "cache_files", "operands", "planning", "backends"),
    ),
}
# Back ends of variable-size batches read the records of their plan where planning defines them.
GROUPED = parts(
    "backends.grouped", "backends.opencl.grouped", "backends.opencl.grouped_tables", "backends.cuda"
)


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer[0])
def test_a_layer_imports_only_what_lies_below(layer: tuple[str, ...]) -> None:
    members = [module for module in MODULES if within(module, layer)]
    assert members
    wrong = [
        (module, imported)
        for module in members
        for imported in imports(module)
        if not within(imported, (*LAYERS[layer], *layer))
        and not (within(module, GROUPED) and imported == "tilewright.planning.grouped")
    ]
    assert wrong == []


def test_nothing_knows_the_command_line_the_reports_or_the_suites() -> None:
    tops = parts("cli", "report", "suites", "__main__")
    wrong = [
        (module, imported)
        for module in MODULES
        if not within(module, tops)
        for imported in imports(module)
        if within(imported, tops)
    ]
    assert wrong == []


def test_imports_form_no_circle() -> None:
    graph = {
        module: {name for name in imports(module, deferred=False) if name != module}
        for module in MODULES
    }
    assert len(list(TopologicalSorter(graph).static_order())) >= len(MODULES)


def test_planning_touches_no_device() -> None:
    for module in MODULES:
        if within(module, parts("planning")):
            assert "pyopencl" not in path_of(module).read_text()


STEMS = sorted(name for _, name, _ in pkgutil.iter_modules(kernels.__path__))
SOURCES = sorted(path.stem for path in (PACKAGE / "backends/opencl/kernels").glob("*.cl"))


@pytest.mark.parametrize("stem", STEMS)
def test_a_kernel_is_one_stem(stem: str) -> None:
    declared = importlib.import_module(f"{kernels.__name__}.{stem}").KERNEL
    assert declared.name == stem
    assert stem in SOURCES


@pytest.mark.parametrize("source", sorted(set(SOURCES) - set(STEMS)))
def test_a_source_without_a_declaration_is_launched_by_name(source: str) -> None:
    folder = PACKAGE / "backends/opencl"
    assert any(f'"{source}"' in path.read_text() for path in folder.rglob("*.py"))


def test_no_file_is_longer_than_500_lines() -> None:
    files = [
        path
        for folder in ("tilewright", "tests", "bench")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".cl", ".clh", ".cu")
    ]
    assert len(files) > 50
    long = {path.name: len(path.read_text().splitlines()) for path in files}
    assert {name: lines for name, lines in long.items() if lines > 500} == {}


def test_all_names_what_the_package_offers() -> None:
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    imported = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert set(tilewright.__all__) == imported
    assert list(tilewright.__all__) == sorted(tilewright.__all__)
    for name in tilewright.__all__:
        assert inspect.getdoc(getattr(tilewright, name)), name


def test_types_and_sources_are_in_the_package() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    assert wheel["targets"]["wheel"] == {"packages": ["tilewright"]}  # the folder, whole
    assert (PACKAGE / "py.typed").is_file()
    assert SOURCES


def test_every_environment_variable_is_read_in_settings() -> None:
    """But for what belongs to others: OpenCL's loader and pyopencl."""
    for module in MODULES:
        text = path_of(module).read_text()
        if module != "tilewright.settings":
            assert 'environ.get("TILEWRIGHT' not in text, module
            assert 'environ["TILEWRIGHT' not in text, module
