"""Adapters of few rows: right in Triton's interpreter, compiled for GPUs, right on one."""

from __future__ import annotations

from typing import Any

import pytest

triton: Any = pytest.importorskip("triton", reason="Triton is not installed")
torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")

from tests.backends.cuda.test_triton_code import code  # noqa: E402
from tests.support.interpreter import interpreted  # noqa: E402
from tilewright.backends.cuda.lora import few_rows  # noqa: E402


def test_rows_are_right_in_the_interpreter() -> None:
    assert "few rows: right" in interpreted("lora_proof")


@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
@pytest.mark.parametrize("name", ["down", "up"])
def test_both_kernels_compile(name: str, target: str) -> None:
    from tilewright.backends.cuda.kernels.triton import lora

    kernel = getattr(lora, name)
    types = {"x": "*bf16", "base": "*bf16", "out": "*bf16", "scales": "*bf16", "inner": "*fp32"}
    types |= {"adapter": "*i64", "table": "*i64"}
    constants = {"PARTS": 8, "MOST": 64}
    constants |= {"PIECE": 16, "TILE_K": 128} if name == "down" else {"TILE_N": 128}
    given = {
        one.name: types.get(one.name, "i32") for one in kernel.params if one.name not in constants
    }
    assert code(kernel, target, given, constants)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_a_layer_gives_few_rows_what_it_gives_many(
    dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tilewright.pytorch import GroupedLoRA

    torch.manual_seed(0)
    base = torch.nn.Linear(130, 66, device="cuda", dtype=getattr(torch, dtype))
    layer = GroupedLoRA(base, [4, 1, 16, 4, 40], alpha=8.0)
    for b in layer.b:
        torch.nn.init.normal_(b)
    adapter = torch.tensor([3, 0, -1, 2, 2, 4, 0, 1, 99, 3], device="cuda")
    x = torch.randn(10, 130, device="cuda", dtype=getattr(torch, dtype))
    ways = []
    added = few_rows.added
    monkeypatch.setattr(few_rows, "added", lambda *given: ways.append(1) or added(*given))
    with torch.no_grad():
        few = [layer(x, adapter) for _ in range(2)][1]
        layer.b[0].data = layer.b[0].data.clone()  # elsewhere now
        assert torch.equal(layer(x, adapter), few)
    many = layer(x, adapter).detach()
    assert len(ways) == 3
    slack = {"bfloat16": 2e-2, "float32": 1e-5, "float64": 1e-12}[dtype]
    torch.testing.assert_close(few, many, rtol=slack, atol=slack * float(many.abs().max()))
