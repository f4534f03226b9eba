"""Small faults of the code: one comparison, operator, number or truth changed at a time.

What nobody can see is not changed: annotations, decorators, messages of errors, `__all__`,
`strict=` of a zip, whether `astype` copies, and the -1 of a `reshape`, for which NumPy takes any
number below 0.
"""

from __future__ import annotations

import ast
import random
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Files by pattern, with the tests that hold them to what they say, the quickest first.
TARGETS = (
    ("planning/[!gmob]*.py", ("test_decisions", "test_cost", "test_worked_examples", "test_quick")),
    ("planning/[gmob]*.py", ("test_decisions", "test_worked_examples", "test_planner_simulator")),
    ("engines/dense.py", ("test_decisions", "test_cost", "test_rules")),
    ("tuning/visits.py", ("test_crossover", "test_decisions")),
    ("tuning/crossover.py", ("test_crossover", "test_share", "test_store")),
    ("tuning/curves.py", ("test_crossover", "test_bad_input")),
    ("tuning/pr*.py", ("test_proof", "test_probe")),
    ("tuning/peak.py", ("test_peak_clocks", "test_peak")),
    ("tuning/energy.py", ("test_energy",)),
    ("tuning/t*.py", ("test_tuned", "test_tuner")),
    ("tuning/[knsw]*.py", ("test_proof", "test_store", "test_tuned", "test_tuner")),
    ("tuning/exchange.py", ("test_store", "test_tuned")),
    ("inputs/checks.py", ("test_check_limits", "test_bad_input", "test_opencl_arrays")),
    ("arrays/array.py", ("test_opencl_arrays", "test_bad_input")),
    ("arrays/views.py", ("test_bad_input", "test_opencl_arrays")),
    ("inputs/matrices.py", ("test_check_limits", "test_grouped_input", "test_grouped_single")),
    ("inputs/batch.py", ("test_grouped_input", "test_wrong_options", "test_sums")),
    ("inputs/product.py", ("test_check_limits", "test_bad_input", "test_wrong_options")),
    ("backends/opencl/[el][xa]*.py", ("test_own_memory", "test_opencl_arrays")),
    ("backends/opencl/operands.py", ("test_decisions", "test_kernels")),
    ("backends/opencl/batches.py", ("test_matmul", "test_own_memory")),
    ("backends/opencl/grouped_launch.py", ("test_grouped", "test_interrupted")),
    ("backends/cuda/machine/triton_launch.py", ("test_cuda_launcher", "test_cuda_launch")),
    (
        "backends/cuda/[bc]*/*launch.py",
        ("test_chain_launch", "test_onebit_launch", "test_winograd"),
    ),
    ("nn/layers/*.py", ("test_layer_limits", "test_network", "test_special_numbers")),
    ("nn/onnx/operators/*.py", ("test_onnx_numbers", "test_onnx_import", "test_onnx_operators")),
    ("nn/onnx/*.py", ("test_onnx_numbers", "test_onnx_import", "test_onnx_operators")),
)
_LARGE = 16  # a number from which one more would hardly be another
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
    """One change: the source with it, what it was in words, and the function it is in.

    `function` is `Class.method` or `outer.<locals>.inner`, "" outside of any; `tests` are the files
    of tests that its target names.
    """

    path: Path
    line: int
    change: str
    source: str
    target: str
    tests: tuple[str, ...]
    function: str

    @property
    def where(self) -> str:
        """`tilewright/planning/quick.py:57`."""
        return f"{self.path.relative_to(ROOT)}:{self.line}"


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
        case ast.Call(func=ast.Attribute(attr="astype"), keywords=options):
            return [option for option in options if option.arg == "copy"]
        case ast.Call(func=ast.Attribute(attr="reshape"), args=sizes):
            return [size for size in sizes if isinstance(size, ast.UnaryOp)]
    return []


def mutant(path: Path, index: int, target: str, tests: tuple[str, ...]) -> Mutant:
    """The file with its node of this number changed."""
    tree = ast.parse(path.read_text())
    node = list(ast.walk(tree))[index]
    before = ast.unparse(node)
    _changed(node)
    line = getattr(node, "lineno", 0)
    change = f"{before}  ->  {ast.unparse(node)}"
    return Mutant(path, line, change, ast.unparse(tree), target, tests, _function(tree, node))


def _function(tree: ast.AST, node: ast.AST, name: str = "") -> str:
    """The innermost function whose body holds the node, as Python names it; "" for none."""
    for one in ast.iter_child_nodes(tree):
        if not any(part is node for part in ast.walk(one)):
            continue
        match one:
            case ast.ClassDef():
                return _function(one, node, f"{name}{one.name}.")
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                if not any(part is node for statement in one.body for part in ast.walk(statement)):
                    return ""
                inner = _function(one, node, f"{name}{one.name}.<locals>.")
                return inner or name + one.name
            case _:
                return _function(one, node, name)
    return ""


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
