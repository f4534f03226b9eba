"""The plan of the house, held: rooms and floors, one stem a kernel, small files.

Every import counts: those inside functions, those for type checkers only, and modules that are
named in a string. Put off or not, a module leans on what it names.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import tilewright
from tilewright.backends.opencl import kernels

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "tilewright"


def modules_of(folder: str) -> list[str]:
    paths = [path.relative_to(ROOT).with_suffix("") for path in (ROOT / folder).rglob("*.py")]
    return sorted(path.as_posix().replace("/", ".").removesuffix(".__init__") for path in paths)


MODULES = modules_of("tilewright")
BENCH = modules_of("bench")

# From the ground up. A room is a folder of the package, or a file that lies in it. A room imports
# itself and rooms of lower floors; rooms of one floor do not know each other.
FLOORS: tuple[tuple[str, ...], ...] = (
    ("errors", "facts", "remember", "version", "wording"),
    ("arrays", "files", "planning", "suites", "workers"),
    ("engines", "settings"),
    ("backends",),
    ("tuning",),
    ("inputs",),
    ("calls", "onebit"),
    ("nn", "torch_ops"),
    ("models", "products"),
    ("names", "pytorch", "video"),
    ("distributed", "doors", "jax", "report"),
    ("cli",),
)
# What users import by these names; such a package holds nothing of its own.
NAMES = ("tilewright", "tilewright.nn", "tilewright.onebit", "tilewright.onebit.layers")


def path_of(module: str) -> Path:
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def room_of(module: str) -> str:
    if module in NAMES:
        return "names"
    return {"__main__": "cli"}.get(name := module.split(".")[1], name)


def floor_of(room: str) -> int:
    return next(level for level, rooms in enumerate(FLOORS) if room in rooms)


def imports(module: str) -> Iterator[str]:
    """The modules of this repository that a module imports, or names, anywhere in it."""
    for node in ast.walk(ast.parse(path_of(module).read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=base, names=names, level=level):
                assert level == 0, f"{module}: imports are absolute"
                for alias in names:
                    full = f"{base}.{alias.name}"
                    yield full if full in KNOWN else str(base)
            case ast.Constant(value=str() as text) if text in KNOWN and "." in text:
                yield text


KNOWN = {*MODULES, *BENCH}


@cache
def leans() -> dict[str, set[str]]:
    """What each module imports; read by the process whose tests ask, not by all that collect."""
    return {module: {name for name in imports(module) if name != module} for module in MODULES}


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


def test_every_module_is_in_a_room_and_every_room_on_a_floor() -> None:
    rooms = [room for floor in FLOORS for room in floor]
    assert {room_of(module) for module in MODULES} == set(rooms)
    assert len(rooms) == len(set(rooms))
    assert len(FLOORS) <= 12


@pytest.mark.parametrize("room", [room for floor in FLOORS for room in floor])
def test_a_room_leans_only_on_rooms_below(room: str) -> None:
    wrong = [
        (module, name)
        for module in MODULES
        if room_of(module) == room
        for name in leans()[module]
        if name in KNOWN and room_of(name) != room and floor_of(room_of(name)) >= floor_of(room)
    ]
    assert wrong == []


def test_imports_form_no_circle() -> None:
    assert circles(leans()) == []


@pytest.mark.parametrize(
    "package", sorted({module.rpartition(".")[0] for module in MODULES if module.count(".") > 1})
)
def test_what_lies_beside_each_other_in_a_folder_forms_no_circle(package: str) -> None:
    """Folders and files of one folder, each as one."""

    def part(module: str) -> str:
        return module.removeprefix(f"{package}.").partition(".")[0]

    inside = [module for module in MODULES if module.startswith(f"{package}.")]
    graph: dict[str, set[str]] = {part(module): set() for module in inside}
    for module in inside:
        graph[part(module)] |= {
            part(name) for name in leans()[module] & set(inside) if part(name) != part(module)
        }
    assert circles(graph) == []


@pytest.mark.parametrize("name", ["cuda", "host", "opencl"])
def test_a_back_end_knows_no_other(name: str) -> None:
    mine = f"tilewright.backends.{name}"
    wrong = [
        (module, other)
        for module in MODULES
        if f"{module}.".startswith(f"{mine}.")
        for other in leans()[module]
        if other.startswith("tilewright.backends.") and not f"{other}.".startswith(f"{mine}.")
    ]
    assert wrong == []


def test_benches_lean_on_the_library_and_on_each_other_only_one_way() -> None:
    graph = {module: set(imports(module)) - {module} for module in BENCH}
    for module, names in graph.items():
        above = [name for name in names if f"{name}.".startswith(("tests.", "tilewright.cli."))]
        assert above == [], module
    assert circles({module: graph[module] & set(BENCH) for module in BENCH}) == []


def test_planning_touches_no_device() -> None:
    for module in MODULES:
        if room_of(module) == "planning":
            assert "pyopencl" not in path_of(module).read_text(encoding="utf-8")


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
    assert any(f'"{source}"' in path.read_text(encoding="utf-8") for path in folder.rglob("*.py"))


def test_no_file_is_longer_than_500_lines() -> None:
    files = [
        path
        for folder in ("tilewright", "tests", "bench", "fuzz", "train")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".cl", ".clh", ".cu", ".cuh")
    ]
    assert len(files) > 50
    long = {path.name: len(path.read_text(encoding="utf-8").splitlines()) for path in files}
    assert {name: lines for name, lines in long.items() if lines > 500} == {}


def test_the_page_names_every_room_and_every_folder() -> None:
    """And is one page. What a file is for stands in its head."""
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    folders = {path.parent for path in PACKAGE.rglob("*.py")} - {PACKAGE}
    assert {folder.name for folder in folders if f"{folder.name}/" not in page} == set()
    files = {f"{path.name}" for path in PACKAGE.glob("*.py")} - {"__init__.py", "__main__.py"}
    assert {name for name in files if name not in page} == set()
    assert len(page.splitlines()) <= 120


def test_the_tests_mirror_the_rooms() -> None:
    folders = {path.parent.relative_to(ROOT / "tests") for path in ROOT.glob("tests/**/test_*.py")}
    rooms = {path.parent.relative_to(PACKAGE) for path in PACKAGE.rglob("__init__.py")}
    assert folders - rooms == set()


def test_all_names_what_the_package_offers() -> None:
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    imported = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert set(tilewright.__all__) == imported - {"__version__"}
    assert list(tilewright.__all__) == sorted(tilewright.__all__)
    for name in tilewright.__all__:
        assert inspect.getdoc(getattr(tilewright, name)), name


@pytest.mark.parametrize("package", NAMES)
def test_a_package_of_names_holds_nothing_of_its_own(package: str) -> None:
    module = importlib.import_module(package)
    for name in module.__all__:
        assert getattr(module, name).__module__ not in NAMES, name
        assert name in dir(module)


def test_types_and_sources_are_in_the_package() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"][
        "build"
    ]
    assert wheel["targets"]["wheel"] == {"packages": ["tilewright"]}  # the folder, whole
    assert (PACKAGE / "py.typed").is_file()
    assert SOURCES


def test_every_environment_variable_is_read_in_settings() -> None:
    """But for what belongs to others: OpenCL's loader and pyopencl."""
    for module in MODULES:
        text = path_of(module).read_text(encoding="utf-8")
        if module != "tilewright.settings":
            assert 'environ.get("TILEWRIGHT' not in text, module
            assert 'environ["TILEWRIGHT' not in text, module


def test_importing_the_package_loads_no_engine_of_a_gpu() -> None:
    """Whoever has no GPU should not wait for the kernels of one."""
    script = "import sys, tilewright; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    engines = {f"tilewright.backends.cuda.{name}" for name in ("hopper", "tiled", "vendor")}
    assert not engines & set(done.stdout.split())
