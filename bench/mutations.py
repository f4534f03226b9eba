"""How many small faults the tests find: mutants of the code, each against the tests of its file.

    python -m bench.mutations --count 200 --seed 1 --jobs 2

A mutant changes one thing: a comparison, an operator, a number, a truth. It counts as killed where
the tests fail or do not end. Those that survive are printed with file, line and change, to be
looked at: some change nothing that can be seen (an equivalent), the others ask for a test. Run by
hand: a mutant takes as long as its tests.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Queue

ROOT = Path(__file__).resolve().parent.parent
# Files by pattern, with the tests that hold them to what they say, the quickest first.
TARGETS = (
    ("planning/[!gmob]*.py", ("test_planner", "test_tuned", "test_rules", "test_crossover")),
    ("planning/[gmob]*.py", ("test_planner_simulator", "test_planner", "test_grouped")),
    ("tuning/visits.py", ("test_crossover",)),
    ("tuning/crossover.py", ("test_crossover", "test_store", "test_bad_input")),
    ("tuning/curves.py", ("test_bad_input",)),
    ("tuning/p[er]*.py", ("test_probe", "test_proof", "test_peak")),
    ("tuning/energy.py", ("test_energy",)),
    ("tuning/t*.py", ("test_tuned", "test_tuner")),
    ("tuning/[knsw]*.py", ("test_tuner", "test_proof", "test_store", "test_tuned")),
    ("tuning/exchange.py", ("test_store", "test_tuned")),
    ("arguments.py", ("test_opencl_arrays", "test_bad_input", "test_matmul")),
    ("operands.py", ("test_opencl_arrays", "test_bad_input", "test_matmul")),
    ("batched.py", ("test_grouped_input", "test_grouped")),
    ("backends/opencl/launch.py", ("test_own_memory", "test_opencl_arrays", "test_devices")),
    ("backends/cuda/launcher.py", ("test_cuda_launch",)),
    ("onebit/onnx_*.py", ("test_onebit_onnx", "test_onebit_onnx_operators")),
)
_SECONDS = 180
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
    tests: tuple[str, ...]


def places(path: Path) -> list[int]:
    """Numbers of the nodes of a file that can be changed."""
    return [
        index for index, node in enumerate(ast.walk(ast.parse(path.read_text()))) if _changed(node)
    ]


def mutant(path: Path, index: int, tests: tuple[str, ...]) -> Mutant:
    """The file with its node of this number changed."""
    tree = ast.parse(path.read_text())
    node = next(node for number, node in enumerate(ast.walk(tree)) if number == index)
    before = ast.unparse(node)
    _changed(node)
    line = getattr(node, "lineno", 0)
    change = f"{before}  ->  {ast.unparse(node)}"
    return Mutant(path, line, change, ast.unparse(tree), tests)


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
            node.value = number + 1
        case ast.Call(func=ast.Name(id="min")):
            node.func = ast.Name("max", ast.Load())
        case ast.Call(func=ast.Name(id="max")):
            node.func = ast.Name("min", ast.Load())
        case _:
            return False
    ast.fix_missing_locations(node)
    return True


def sample(count: int, seed: int) -> list[Mutant]:
    """As many of every target as its share, drawn at random."""
    draw = random.Random(seed)
    found = [
        [
            (path, index, tests)
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


def survives(one: Mutant, tree: Path) -> bool:
    """Whether the tests pass with the change in a copy of the project."""
    place = tree / one.path.relative_to(ROOT)
    original = place.read_text()
    place.write_text(one.source)
    files = [f"tests/{name}.py" for name in one.tests]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *files]
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, timeout=_SECONDS, check=False
        )
        return done.returncode == 0
    except subprocess.TimeoutExpired:
        return False
    finally:
        place.write_text(original)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    picked = sample(given.count, given.seed)
    trees: Queue[Path] = Queue()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(given.jobs) as pool:
        for job in range(given.jobs):
            tree = Path(folder, str(job))
            for name in ("tilewright", "tests", "bench", "docs"):
                shutil.copytree(ROOT / name, tree / name)
            shutil.copy(ROOT / "pyproject.toml", tree)
            trees.put(tree)

        def judge(one: Mutant) -> bool:
            tree = trees.get()
            try:
                return survives(one, tree)
            finally:
                trees.put(tree)

        alive = 0
        for number, (one, lives) in enumerate(zip(picked, pool.map(judge, picked), strict=True), 1):
            alive += lives
            where = f"{one.path.relative_to(ROOT)}:{one.line}"
            verdict = "SURVIVES" if lives else "killed"
            print(f"{number} {verdict}  {where}  {one.change[:160]!r}", flush=True)
        print(f"{len(picked) - alive} of {len(picked)} killed, {1 - alive / len(picked):.1%}")


if __name__ == "__main__":
    main()
