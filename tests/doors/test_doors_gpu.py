"""Doors on a GPU: what other libraries compute there is the same with a door open."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
]


@pytest.mark.parametrize("counts", [torch.int32, torch.int64])
@pytest.mark.parametrize("width", [64, 63])
@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32", "float64"])
def test_grouped_mm_is_right_of_any_dtype_stride_and_offset(
    kind: str, width: int, counts: Any
) -> None:
    import tilewright.pytorch as ours

    dtype = getattr(torch, kind)
    draw = torch.Generator("cuda").manual_seed(width)
    x, w = (
        torch.randn(*shape, generator=draw, device="cuda", dtype=torch.float64).to(dtype)
        for shape in ((300, width), (4, width, width - 3))
    )
    if width % 8 == 0:
        w = w[:, :, :32].contiguous()
    x.requires_grad_()
    w.requires_grad_()
    ends = torch.tensor([100, 100, 210, 300], device="cuda", dtype=counts)
    ours.install()
    try:
        found = torch.nn.functional.grouped_mm(x, w, offs=ends)
        found.backward(torch.ones_like(found))  # what sum() gives, laid out as torch asks
    finally:
        ours.uninstall()
    bounds = ((0, 100), (100, 100), (100, 210), (210, 300))
    wide = w.detach().double()
    rows = [x[i:j].detach().double() @ wide[g] for g, (i, j) in enumerate(bounds)]
    of_x = [wide[g].sum(1).expand(j - i, -1) for g, (i, j) in enumerate(bounds)]
    of_w = torch.stack(
        [x[i:j].detach().double().sum(0)[:, None].expand(wide.shape[1:]) for i, j in bounds]
    )
    for mine, right in ((found, torch.cat(rows)), (x.grad, torch.cat(of_x)), (w.grad, of_w)):
        scale = float(right.abs().max())
        torch.testing.assert_close(
            mine.double(), right, rtol=0, atol=float(8 * torch.finfo(dtype).eps * scale)
        )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("width", [64, 37])
@pytest.mark.parametrize("family", ["Qwen3Moe", "Mixtral", "GptOss"])
def test_experts_of_transformers_and_their_gradients_are_those_of_eager(
    family: str, width: int, dtype: Any
) -> None:
    pytest.importorskip("transformers.integrations.moe", reason="no Transformers from 5 on")
    from tests.doors.test_transformers import experts_of, model, routed
    from tilewright.doors import transformers as door

    door.register()
    try:
        layer = experts_of(model(family, width, "tilewright", dtype)).to("cuda")
        with torch.no_grad():
            for value in layer.parameters():
                value.mul_(0.3)
        x, index, weights = (one.to("cuda") for one in routed(layer, width, dtype))
        x.requires_grad_()
        found = []
        for how in ("eager", "tilewright"):
            layer.config._experts_implementation = how
            out = layer(x, index, weights)
            grads = torch.autograd.grad(out.square().sum(), [x, *layer.parameters()])
            found.append((out.detach(), *grads))
    finally:
        door.unregister()
    part = {torch.bfloat16: 6e-2, torch.float32: 2e-5, torch.float64: 1e-9}[dtype]
    for right, mine in zip(*found, strict=True):
        scale = float(right.abs().max())
        torch.testing.assert_close(mine, right, rtol=0, atol=part * scale)


def test_typed_layers_of_pyg_and_their_gradients_are_those_of_its_loops() -> None:
    pytest.importorskip("torch_geometric", reason="PyTorch Geometric is not installed")
    from torch_geometric.nn import HeteroLinear, RGCNConv

    from tilewright.doors import pyg

    torch.manual_seed(1)
    kind = torch.randint(0, 5, (400,), device="cuda")
    ends = torch.randint(0, 400, (2, 900), device="cuda")
    types = torch.randint(0, 5, (900,), device="cuda")
    for layer, rest in (
        (HeteroLinear(19, 23, 5), (kind,)),
        (RGCNConv(19, 23, 5, aggr="add"), (ends, types)),
    ):
        layer = layer.to("cuda")
        x = torch.randn(400, 19, device="cuda", requires_grad=True)
        found = []
        for is_open in (False, True):
            if is_open:
                pyg.install()
            try:
                out = layer(x, *rest)
                found.append((out, *torch.autograd.grad(out.square().sum(), [x, layer.weight])))
            finally:
                pyg.uninstall()
        for right, mine in zip(*found, strict=True):
            torch.testing.assert_close(mine, right, rtol=1e-4, atol=1e-4 * float(right.abs().max()))
