"""How many small faults the tests find: mutants of the code, each against the tests of its file.

    python -m bench.mutations --count 200 --seed 1 --jobs 2
    python -m bench.mutations --count 200 --seed 1 --again 17 42    # only these of the same draw

A mutant changes one thing: a comparison, an operator, a number, a truth. It counts as killed where
the tests fail, or take five times as long as without it (an endless loop). Every target's tests
first run without a mutant and must pass. What nobody can see is not changed: annotations,
decorators, messages of errors, `__all__`, `strict=` of a zip. Those that survive are printed with
file, line and change, to be looked at: some change nothing all the same (an equivalent), the
others ask for a test. Run by hand: a mutant takes as long as its tests.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Queue

ROOT = Path(__file__).resolve().parent.parent
# Files by pattern, with the tests that hold them to what they say, the quickest first.
TARGETS = (
    ("planning/[!gmob]*.py", ("test_cost", "test_rules", "test_quick", "test_crossover")),
    ("planning/[gmob]*.py", ("test_planner", "test_planner_simulator")),
    ("tuning/visits.py", ("test_crossover",)),
    ("tuning/crossover.py", ("test_crossover", "test_store")),
    ("tuning/curves.py", ("test_crossover", "test_bad_input")),
    ("tuning/pr*.py", ("test_proof", "test_probe")),
    ("tuning/peak.py", ("test_peak_clocks", "test_peak")),
    ("tuning/energy.py", ("test_energy",)),
    ("tuning/t*.py", ("test_tuned", "test_tuner")),
    ("tuning/[knsw]*.py", ("test_proof", "test_store", "test_tuned", "test_tuner")),
    ("tuning/exchange.py", ("test_store", "test_tuned")),
    ("arguments.py", ("test_bad_input", "test_opencl_arrays")),
    ("operands.py", ("test_bad_input", "test_opencl_arrays")),
    ("batched.py", ("test_grouped_input", "test_grouped_single")),
    ("backends/opencl/launch.py", ("test_own_memory", "test_opencl_arrays")),
    ("backends/cuda/launcher.py", ("test_cuda_launch",)),
    ("onebit/onnx_*.py", ("test_onebit_onnx", "test_onebit_onnx_operators")),
)
# Tests of minutes, which show what quicker ones beside them show too.
_LEFT_OUT = "not never_worse_than_any_order and not tunes_a_real_kernel"
_LARGE = 16  # a number from which one more would hardly be another
_LEAST = 60.0  # seconds that a mutant's tests may always take
_SLOWER = 5.0  # times as long as without a mutant: an endless loop, whatever else the machine does
_COMPARE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_OPERATE: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
}


@dataclass(frozen=True)
class Mutant:
    """One change: the source with it, and what it was in words."""

    path: Path
    line: int
    change: str
    source: str
    target: str
    tests: tuple[str, ...]


def places(path: Path) -> list[int]:
    """Numbers of the nodes of a file that can be changed, and whose change could be seen."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    unseen = {id(part) for node in nodes for top in _unseen(node) for part in ast.walk(top)}
    return [index for index, node in enumerate(nodes) if id(node) not in unseen and _changed(node)]


def _unseen(node: ast.AST) -> list[ast.AST]:
    """Parts of a node that decide about nothing: what they are is for readers and checkers."""
    match node:
        case ast.FunctionDef(decorator_list=decorators, returns=returns):
            return [*decorators, *([returns] if returns else [])]
        case ast.ClassDef(decorator_list=decorators):
            return list(decorators)
        case ast.arg(annotation=ast.expr() as annotation):
            return [annotation]
        case ast.AnnAssign(annotation=annotation):
            return [annotation]
        case ast.Raise(exc=ast.expr() as error):
            return [error]
        case ast.JoinedStr() | ast.keyword(arg="strict"):
            return [node]
        case ast.Assign(targets=[ast.Name(id="__all__")]):
            return [node]
    return []


def mutant(path: Path, index: int, target: str, tests: tuple[str, ...]) -> Mutant:
    """The file with its node of this number changed."""
    tree = ast.parse(path.read_text())
    node = list(ast.walk(tree))[index]
    before = ast.unparse(node)
    _changed(node)
    line = getattr(node, "lineno", 0)
    change = f"{before}  ->  {ast.unparse(node)}"
    return Mutant(path, line, change, ast.unparse(tree), target, tests)


def _changed(node: ast.AST) -> bool:
    match node:
        case ast.Compare(ops=[op, *_]) if type(op) in _COMPARE:
            node.ops[0] = _COMPARE[type(op)]()
        case ast.BinOp(op=op) if type(op) in _OPERATE:
            node.op = _OPERATE[type(op)]()
        case ast.BoolOp(op=ast.And()):
            node.op = ast.Or()
        case ast.BoolOp(op=ast.Or()):
            node.op = ast.And()
        case ast.UnaryOp(op=ast.Not()):
            node.op = ast.UAdd()
            node.operand = ast.Call(ast.Name("bool", ast.Load()), [node.operand], [])
        case ast.Constant(value=bool()):
            node.value = not node.value
        case ast.Constant(value=int() | float() as number):
            node.value = 2 * number if number >= _LARGE else number + 1
        case ast.Call(func=ast.Name(id="min")):
            node.func = ast.Name("max", ast.Load())
        case ast.Call(func=ast.Name(id="max")):
            node.func = ast.Name("min", ast.Load())
        case _:
            return False
    ast.fix_missing_locations(node)
    return True


def sample(count: int, seed: int) -> list[Mutant]:
    """As many of every target as its share, three at least, drawn at random."""
    draw = random.Random(seed)
    found = [
        [
            (path, index, pattern, tests)
            for path in sorted((ROOT / "tilewright").glob(pattern))
            for index in places(path)
        ]
        for pattern, tests in TARGETS
    ]
    whole = sum(map(len, found))
    picked = []
    for some in found:
        share = max(3, round(count * len(some) / whole))
        picked += draw.sample(some, min(len(some), share))
    draw.shuffle(picked)
    return [mutant(*one) for one in picked[:count]]


def passes(tests: tuple[str, ...], tree: Path, seconds: float | None) -> bool:
    """Whether the tests of a copy of the project pass, within the time if one is given."""
    files = [f"tests/{name}.py" for name in tests]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        "-k",
        _LEFT_OUT,
        *files,
    ]
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    # A session of their own, ended whole: what a killed test run has started does not linger.
    running = subprocess.Popen(
        command,
        cwd=tree,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return running.wait(seconds) == 0
    except subprocess.TimeoutExpired:
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()
        return False


def survives(one: Mutant, tree: Path, seconds: float) -> bool:
    """Whether the tests pass with the change in a copy of the project."""
    place = tree / one.path.relative_to(ROOT)
    original = place.read_text()
    place.write_text(one.source)
    try:
        return passes(one.tests, tree, seconds)
    finally:
        place.write_text(original)


def limits(tree: Path, wanted: set[str]) -> dict[str, float]:
    """Seconds that each target's tests may take, which pass without a mutant."""
    found = {}
    for pattern, tests in TARGETS:
        if pattern not in wanted:
            continue
        began = time.perf_counter()
        if not passes(tests, tree, None):
            sys.exit(f"{pattern}: its tests fail without a mutant: {' '.join(tests)}")
        took = time.perf_counter() - began
        print(f"{pattern}: {took:.0f} s without a mutant", flush=True)
        found[pattern] = max(_LEAST, _SLOWER * took)
    return found


def copies(folder: Path, count: int) -> list[Path]:
    """Copies of the project, one for each job."""
    trees = [folder / str(job) for job in range(count)]
    for tree in trees:
        for name in ("tilewright", "tests", "bench", "docs"):
            shutil.copytree(ROOT / name, tree / name)
        shutil.copy(ROOT / "pyproject.toml", tree)
    return trees


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--again", type=int, nargs="+", metavar="NUMBER", default=[])
    given = parser.parse_args()
    numbered = list(enumerate(sample(given.count, given.seed), 1))
    if given.again:
        numbered = [numbered[number - 1] for number in given.again]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(given.jobs) as pool:
        trees: Queue[Path] = Queue()
        for tree in (made := copies(Path(folder), given.jobs)):
            trees.put(tree)
        seconds = limits(made[0], {one.target for _, one in numbered})

        def judge(pair: tuple[int, Mutant]) -> bool:
            number, one = pair
            tree = trees.get()
            try:
                lives = survives(one, tree, seconds[one.target])
            finally:
                trees.put(tree)
            where = f"{one.path.relative_to(ROOT)}:{one.line}"
            verdict = "SURVIVES" if lives else "killed"
            print(f"{number} {verdict}  {where}  {one.change[:160]!r}", flush=True)
            return lives

        lives = list(pool.map(judge, numbered))
    show([one for _, one in numbered], lives)


def show(picked: list[Mutant], lives: list[bool]) -> None:
    """The score of every target, and of all."""
    all_of = Counter(one.target for one in picked)
    killed = Counter(one.target for one, alive in zip(picked, lives, strict=True) if not alive)
    for target, count in all_of.items():
        print(f"{target}: {killed[target]} of {count} killed")
    dead, count = killed.total(), len(picked)
    print(f"{dead} of {count} killed, {dead / count:.1%}")


if __name__ == "__main__":
    main()
