"""torch.set_default_device changes nothing here: whatever makes a tensor says where it lies."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

import tilewright

ROOT = Path(tilewright.__file__).parent
# Of torch: what makes a tensor on the default device where no device is named.
FACTORIES = {
    *("arange", "as_tensor", "asarray", "empty", "empty_strided", "eye", "from_file", "full"),
    *("linspace", "logspace", "ones", "rand", "randint", "randn", "randperm", "range"),
    *("scalar_tensor", "tensor", "tril_indices", "triu_indices", "zeros"),
}


def test_every_tensor_that_is_made_names_its_device() -> None:
    nameless = []
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            owner = ast.unparse(node.func.value)
            if node.func.attr in FACTORIES and owner.rpartition(".")[2] == "torch":
                names = {word.arg for word in node.keywords}
                if not names & {"device", None}:  # None: **keywords
                    nameless.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not nameless


@pytest.mark.parametrize("away", ["meta"])
def test_calls_run_where_their_operands_lie(away: str) -> None:
    torch: Any = pytest.importorskip("torch")
    from tilewright.backends.cuda.machine import faults

    torch.manual_seed(0)
    x, w, y = torch.randn(9, 4), torch.randn(2, 4, 3), torch.randn(9, 3)
    ends, a, b = torch.tensor([2, 9]), torch.randn(5, 4), torch.randn(4, 3)
    wanted = tilewright.ragged_matmul(x, w, ends), tilewright.ragged_matmul(x.t(), y, ends)
    faults._flags.clear()
    with torch.device(away):
        found = tilewright.ragged_matmul(x, w, ends), tilewright.ragged_matmul(x.t(), y, ends)
        faults.check(-1)
        assert not faults.flag(-1).is_meta
        dense = tilewright.matmul(a, b), tilewright.grouped_matmul([a], [b])[0]
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)
    for one in dense:
        torch.testing.assert_close(one, a @ b)
