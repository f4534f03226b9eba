"""The plan of the house, held: which way imports go, one stem a kernel, small files.

Imports inside functions count as those above them: put off or not, a module leans on what it names.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import tomllib
from collections.abc import Iterator
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


BENCH = sorted(
    path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__")
    for path in (ROOT / "bench").rglob("*.py")
)


def path_of(module: str) -> Path:
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def imports(module: str, *, of: tuple[str, ...] = ("tilewright",)) -> Iterator[str]:
    """The modules of these packages that a module imports anywhere in it."""
    known = {*MODULES, *BENCH}
    for node in ast.walk(ast.parse(path_of(module).read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: imports are absolute"
            base = str(node.module)
            names = [f"{base}.{alias.name}" for alias in node.names]
            names = [name if name in known else base for name in names]
        else:
            continue
        yield from (name for name in names if name.partition(".")[0] in of)


def within(module: str, parts: tuple[str, ...]) -> bool:
    return any(module == part or module.startswith(f"{part}.") for part in parts)


def parts(*names: str) -> tuple[str, ...]:
    return tuple(f"tilewright.{name}" for name in names)


RECORDS = parts("batch", "ceilings", "device", "errors", "kernel", "remember")
FILES = parts("settings", "cache_files", "reading", "whole_files", "trust")
BELOW = (*RECORDS, *FILES, *parts("operands", "columns", "planning", "backends", "tuning"))
INPUTS = parts("arguments", "overlap", "selection", "reference", "watched")
PRODUCTS = parts(
    *("api", "batched", "call", "device_sizes", "grouped", "grouped_host", "grouped_tensors"),
    *("grouped_call", "grouped_quick", "grouped_run", "list_plans", "sums"),
    *("ragged", "ragged_tensors", "tensor_call", "tensor_plans", "tensors"),
)
# The layers of DESIGN.md, section 1: each may import what is listed, and itself.
LAYERS = {
    parts("errors"): (),
    parts("remember"): (),
    parts("ceilings"): (),
    parts("device"): parts("ceilings"),
    parts("batch"): (),
    parts("kernel"): parts("batch", "device"),
    parts("settings", "cache_files", "whole_files", "trust", "reading"): parts(
        "errors", "remember"
    ),
    parts("operands"): parts("device", "errors"),
    parts("planning"): (*RECORDS, *parts("columns")),
    parts("backends"): (*RECORDS, *parts("settings", "cache_files", "operands", "columns")),
    parts("backends.opencl.kernels"): (*RECORDS, *parts("backends.opencl")),
    parts("columns"): (),
    parts("tuning"): (*RECORDS, *FILES, *parts("operands", "planning", "backends")),
    INPUTS: (*BELOW, *INPUTS),
    PRODUCTS: (*BELOW, *INPUTS),
    parts("onebit"): (*BELOW, *INPUTS, *PRODUCTS),
    parts("pytorch"): (*BELOW, *INPUTS, *PRODUCTS),
    parts("suites"): RECORDS,
    parts("report"): (*BELOW, *INPUTS, *PRODUCTS, *parts("onebit", "pytorch", "suites")),
    parts("cli", "__main__"): ("tilewright",),
}
# Back ends of variable-size batches read the records of their plan where planning defines them.
GROUPED = parts(
    "backends.grouped",
    "backends.opencl.batches",
    "backends.opencl.grouped",
    "backends.opencl.grouped_tables",
    "backends.cuda",
)


# What leans on a layer above, until products lie below the doors for torch; nobody is to be added.
UPWARDS = {
    ("tilewright.products.dense", "tilewright.pytorch"),
    ("tilewright.products.ragged", "tilewright.pytorch"),
    ("tilewright.products.grouped", "tilewright.pytorch"),
    ("tilewright.onebit.rates", "tilewright"),
    ("tilewright.torch_ops.grouped", "tilewright"),
    ("tilewright.report.document", "tilewright"),
    ("tilewright.report.onebit_bench", "tilewright"),
}


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
        and not _known_upwards(module, imported)
    ]
    assert wrong == []


def _known_upwards(module: str, imported: str) -> bool:
    if imported == "tilewright":
        return (module, imported) in UPWARDS
    return any(
        module == one and above != "tilewright" and within(imported, (above,))
        for one, above in UPWARDS
    )


def test_every_module_is_of_a_layer() -> None:
    """`tilewright` itself is the list of what users see."""
    listed = tuple(part for layer in LAYERS for part in layer)
    assert [m for m in MODULES if m != "tilewright" and not within(m, listed)] == []


def test_benches_lean_on_the_library_and_on_each_other_only_one_way() -> None:
    graph = {module: set(imports(module, of=("bench", "tilewright", "tests"))) for module in BENCH}
    for module, imported in graph.items():
        assert not any(within(name, ("tests", *parts("cli"))) for name in imported), module
    assert circles({module: graph[module] & set(BENCH) for module in BENCH}) == []


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


# Modules that reach each other by imports inside functions, until the folders are drawn anew. No
# circle may grow, and none may join them.
CIRCLES = (
    {
        "tilewright",
        *parts("api", "batched", "grouped", "grouped_host", "grouped_tensors"),
        *parts("grouped_call", "grouped_quick", "grouped_run"),
        *parts("ragged", "ragged_tensors", "tensor_call", "tensors"),
        *(
            f"tilewright.pytorch.{name}"
            for name in ("batches", "dense", "down", "grouped", "lists", "recorded")
        ),
    },
    {f"tilewright.backends.cuda.hopper.{name}" for name in ("bind", "engine", "maps")},
    {f"tilewright.onebit.{name}" for name in ("native_steps", "program")},
)


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """Groups of nodes that reach each other, largest first; a node that reaches itself is one."""

    def reached(start: str) -> set[str]:
        found: set[str] = set()
        todo = list(graph[start])
        while todo:
            if (node := todo.pop()) not in found:
                found.add(node)
                todo += graph.get(node, ())
        return found

    beyond = {node: reached(node) for node in graph}
    groups = {
        frozenset(other for other in beyond[node] if node in beyond.get(other, ()))
        for node in graph
        if node in beyond[node]
    }
    return sorted(map(set, groups), key=len, reverse=True)


def test_circles_are_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set(), "e": {"e"}, "f": {"a"}}
    assert circles(graph) == [{"a", "b", "c"}, {"e"}]


def test_imports_form_no_circle_but_those_that_are_known() -> None:
    graph = {module: {name for name in imports(module) if name != module} for module in MODULES}
    new = [one for one in circles(graph) if not any(one <= known for known in CIRCLES)]
    assert new == []


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
        for folder in ("tilewright", "tests", "bench", "fuzz")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".cl", ".clh", ".cu")
    ]
    assert len(files) > 50
    long = {path.name: len(path.read_text().splitlines()) for path in files}
    assert {name: lines for name, lines in long.items() if lines > 500} == {}


def test_architecture_names_every_module() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text()
    stems = {path.stem for path in PACKAGE.rglob("*.py")} - {"__init__", "__main__"}
    assert {stem for stem in stems if not re.search(rf"\b{stem}\b", page)} == set()


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
