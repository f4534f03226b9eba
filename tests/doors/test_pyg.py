"""Typed layers of PyTorch Geometric with the door open, beside the loops of PyG itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from tests.support import later  # noqa: E402

geometric = later.library("torch_geometric", reason="PyTorch Geometric is not installed")
layers = later.Later("torch_geometric.nn")
door = later.Later("tilewright.doors.pyg")

DTYPES = (torch.float32, torch.float64, torch.bfloat16)


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """PyG's switch on, so that no estimate of its own decides; closed at the end."""
    monkeypatch.setattr(geometric.backend, "use_segment_matmul", True)
    yield
    door.uninstall()


def compare(make: Callable[[], Any], given: tuple[Any, ...], dtype: Any, **options: Any) -> None:
    """Results and gradients of one layer, without the door and with it."""
    found = []
    for install in (False, True):
        (door.install if install else door.uninstall)()
        torch.manual_seed(0)
        layer = make().to(dtype)
        out = layer(*given, **options)
        flat = torch.cat([x.flatten() for x in (out.values() if type(out) is dict else [out])])
        flat.square().sum().backward()
        found.append((flat, [value.grad for value in layer.parameters()]))
    (right, of_right), (mine, of_mine) = found
    bound = {torch.bfloat16: 6e-2, torch.float32: 1e-4, torch.float64: 1e-10}[dtype]
    near(mine, right, bound)
    for one, other in zip(of_mine, of_right, strict=True):
        near(one, other, bound)


def near(mine: Any, right: Any, bound: float) -> None:
    scale = 1.0 if right is None or not right.numel() else float(right.abs().max())
    torch.testing.assert_close(mine, right, rtol=bound, atol=bound * scale)


def rows(count: int, width: int, dtype: Any) -> Any:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(4)).to(dtype)


def types(count: int, many: int) -> Any:
    return torch.randint(0, many, (count,), generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("is_sorted", [True, False])
@pytest.mark.parametrize("count", [53, 0])
def test_hetero_linear_is_that_of_the_loop(count: int, is_sorted: bool, bias: bool) -> None:
    kind = types(count, 4)
    kind = kind.sort()[0] if is_sorted else kind
    for dtype in DTYPES:
        layer = lambda: layers.HeteroLinear(15, 9, 6, is_sorted=is_sorted, bias=bias)  # noqa: E731
        compare(layer, (rows(count, 15, dtype), kind), dtype)


def test_a_lazy_hetero_linear_is_made_by_its_first_rows() -> None:
    door.install()
    layer = layers.HeteroLinear(-1, 9, 6)
    assert layer(rows(20, 15, torch.float32), types(20, 6)).shape == (20, 9)


@pytest.mark.parametrize("count", [3, 12])
def test_dictionaries_keep_the_keys_of_their_rows(count: int) -> None:
    """PyG's own fused way gives them in the order of the dictionary."""
    widths = {f"t{i}": 5 + i for i in range(count)}
    for dtype in DTYPES:
        given = {key: rows(i, width, dtype) for i, (key, width) in enumerate(widths.items())}
        turned = dict(reversed(list(given.items())[1:]))
        door.uninstall()
        geometric.backend.use_segment_matmul = False
        torch.manual_seed(0)
        layer = layers.HeteroDictLinear(widths, 7).to(dtype)
        right = layer(turned)
        geometric.backend.use_segment_matmul = True
        door.install()
        found = layer(turned)
        assert list(found) == list(right)
        for key, value in right.items():
            near(found[key], value, 6e-2 if dtype == torch.bfloat16 else 1e-5)


@pytest.mark.parametrize(
    "options",
    [{}, {"aggr": "add"}, {"aggr": "max"}, {"aggr": "add", "num_bases": 2}, {"num_blocks": 3}],
)
def test_rgcn_is_that_of_the_loop(options: dict[str, Any]) -> None:
    edges = torch.stack([types(90, 20), types(90, 20).flip(0)])
    for dtype in DTYPES:
        compare(
            lambda: layers.RGCNConv(15, 9, 5, **options),
            (rows(20, 15, dtype), edges, types(90, 5)),
            dtype,
        )


def test_hgt_is_that_of_the_loop() -> None:
    kinds = ["a", "b", "c"]
    edge_types = [("a", "to", "b"), ("b", "of", "a"), ("c", "in", "a")]
    for dtype in DTYPES:
        given = {key: rows(12, 14, dtype) for key in kinds}
        edges = {kind: torch.stack([types(40, 12), types(40, 12).flip(0)]) for kind in edge_types}
        compare(lambda: layers.HGTConv(14, 16, (kinds, edge_types), heads=2), (given, edges), dtype)


def test_under_autocast_dtypes_and_results_are_those_of_the_loop() -> None:
    x, kind = rows(40, 15, torch.float32), types(40, 6)
    layer, found = layers.HeteroLinear(15, 9, 6), []
    for change in (door.uninstall, door.install):
        change()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found.append(layer(x, kind))
    assert found[0].dtype == found[1].dtype
    near(found[1], found[0], 3e-2)


@pytest.mark.parametrize("is_sorted", [True, False])
def test_compiled_layers_are_one_graph(is_sorted: bool) -> None:
    door.install()
    kind = types(40, 6)
    kind = kind.sort()[0] if is_sorted else kind
    for dtype in (torch.float32, torch.bfloat16):
        layer = layers.HeteroLinear(15, 9, 6, is_sorted=is_sorted).to(dtype)
        x = rows(40, 15, dtype).requires_grad_()
        right = torch.autograd.grad(layer(x, kind).sum(), [x, *layer.parameters()])
        torch._dynamo.reset()
        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
        near(compiled(x, kind), layer(x, kind), 2e-2)
        found = torch.autograd.grad(compiled(x, kind).sum(), [x, *layer.parameters()])
        for mine, other in zip(found, right, strict=True):
            near(mine, other, 2e-2)


def test_a_compiled_rgcn_gives_what_it_gives() -> None:
    door.install()
    edges, kind = torch.stack([types(90, 20), types(90, 20).flip(0)]), types(90, 5).sort()[0]
    layer = layers.RGCNConv(15, 9, 5, aggr="add", is_sorted=True)
    x = rows(20, 15, torch.float32)
    torch._dynamo.reset()
    compiled = torch.compile(layer, backend="aot_eager")
    near(compiled(x, edges, kind), layer(x, edges, kind), 1e-5)


def test_without_pygs_switch_its_loops_are_kept() -> None:
    door.install()
    geometric.backend.use_segment_matmul = False
    layer = layers.HeteroLinear(15, 9, 6)
    seen: list[int] = []
    layer.forward_naive = lambda x, ptr: seen.append(1) or x.new_zeros(len(x), 9)
    layer(rows(9, 15, torch.float32), types(9, 6))
    assert seen == [1]


def test_twice_is_once_and_pyg_has_back_what_it_had() -> None:
    before = (
        layers.HeteroLinear.forward,
        layers.HeteroDictLinear.forward,
        geometric.typing.WITH_SEGMM,
    )
    for _ in range(2):
        door.install()
    assert layers.HeteroLinear.forward is not before[0]
    for _ in range(2):
        door.uninstall()
    after = (
        layers.HeteroLinear.forward,
        layers.HeteroDictLinear.forward,
        geometric.typing.WITH_SEGMM,
    )
    assert after == before
