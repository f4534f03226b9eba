"""Layers of odd sizes or dtypes are refused by name before torch makes anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from tilewright.errors import ArgumentError, DtypeError, ShapeError  # noqa: E402
from tilewright.pytorch import GroupedLinear, GroupedLoRA, MoE  # noqa: E402

# A layer from its sizes by name, and those sizes.
LAYERS: dict[str, tuple[Callable[..., Any], dict[str, int]]] = {
    "GroupedLinear": (GroupedLinear, {"groups": 3, "in_features": 4, "out_features": 5}),
    "MoE": (
        lambda **sizes: MoE(**{"top": 2, **sizes}),
        {"experts": 3, "features": 4, "hidden": 5},
    ),
}
SIZES = [(layer, size) for layer, (_, sizes) in LAYERS.items() for size in sizes]


@pytest.mark.parametrize("odd", [-1, 2.5, 4.0, "4", None, True, [4]], ids=repr)
@pytest.mark.parametrize(("layer", "size"), SIZES)
def test_a_size_that_is_no_whole_number_from_zero_is_named(layer: str, size: str, odd: Any) -> None:
    make, sizes = LAYERS[layer]
    with pytest.raises(ArgumentError, match=f"^{size}=.*accepted are whole numbers from 0"):
        make(**{**sizes, size: odd})


@pytest.mark.parametrize("layer", LAYERS)
def test_whole_numbers_of_any_kind_are_sizes(layer: str) -> None:
    make, sizes = LAYERS[layer]
    made = make(**{name: np.int32(size) for name, size in sizes.items()})
    assert [one.shape for one in made.parameters()] == [
        one.shape for one in make(**sizes).parameters()
    ]


@pytest.mark.parametrize("dtype", [torch.int8, torch.bool, "float32", np.float32], ids=str)
@pytest.mark.parametrize("layer", LAYERS)
def test_weights_that_cannot_be_drawn_are_refused(layer: str, dtype: Any) -> None:
    make, sizes = LAYERS[layer]
    with pytest.raises(DtypeError, match=r"^dtype=.*accepted are torch's of floating point"):
        make(**sizes, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.int16, torch.bool, torch.complex64], ids=str)
def test_a_router_of_numbers_that_it_cannot_multiply_names_them(dtype: Any) -> None:
    make, sizes = LAYERS["MoE"]
    with pytest.raises(DtypeError, match=rf"^x\.dtype={dtype}: accepted is torch.float32"):
        make(**sizes)(torch.ones(6, 4, dtype=dtype))


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@pytest.mark.parametrize("ahead", [(), (6,), (2, 3), (0,), (2, 0, 3)], ids=str)
def test_layers_of_no_features_and_of_no_tokens_are_layers(ahead: tuple[int, ...]) -> None:
    for features in (0, 4):
        x, experts = torch.ones(*ahead, features), torch.zeros(*ahead, 2, dtype=torch.int64)
        layer = MoE(3, features, 5, top=2)
        assert layer(x).shape == x.shape
        assert layer(x, experts, torch.ones(*ahead, 2)).shape == x.shape
        adapters = GroupedLoRA(torch.nn.Linear(features, 5), [2, 3])
        assert adapters(x, experts[..., 0]).shape == (*ahead, 5)


@pytest.mark.parametrize("name", ["experts", "weights"])
@pytest.mark.parametrize("shape", [(5, 2), (12,), (), (2, 3, 2, 1)], ids=str)
def test_routes_of_other_tokens_are_named(name: str, shape: tuple[int, ...]) -> None:
    routes = {"experts": torch.zeros(2, 3, 2, dtype=torch.int64), "weights": torch.ones(2, 3, 2)}
    routes[name] = routes[name].new_zeros(shape)
    with pytest.raises(ShapeError, match=rf"^{name}\.shape=.*each of x's 6 tokens"):
        MoE(3, 4, 5, top=2)(torch.ones(2, 3, 4), **routes)
