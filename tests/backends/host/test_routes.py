"""Rows of experts by machine code: those that torch's sort and counts give, whatever was chosen."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tilewright.backends.host import compiled, ragged
from tilewright.errors import ArgumentError
from tilewright.inputs.devices import host

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")
if not compiled.available():
    pytest.skip("Numba is not installed", allow_module_level=True)

from tilewright.torch_ops import moe_on_processor  # noqa: E402

SIZES = ((1, 2, 8), (1, 1, 1), (7, 3, 5), (40, 8, 64), (3, 2, 1000), (5, 0, 3), (0, 4, 3))


@pytest.fixture(scope="module", autouse=True)
def is_compiled() -> None:
    ragged.compile_for(host(), "float32")


def chosen() -> Iterator[tuple[Any, int]]:
    """Experts of any integers and lie, some of nobody, all the same one, all nobody's."""
    draw = torch.Generator().manual_seed(5)
    for tokens, top, groups in SIZES:
        for least in (-1, 0, groups - 1):
            experts = torch.randint(least, groups, (tokens, top), generator=draw)
            for kind in (torch.int32, torch.int64):
                one = experts.to(kind)
                yield one, groups
                yield one.t().contiguous().t(), groups
                yield torch.stack((one, one + 5_000), 2)[..., 0], groups
        yield torch.full((tokens, top), -1), groups


def test_rows_are_those_of_a_sort() -> None:
    for experts, groups in chosen():
        rows, found = moe_on_processor.routed(experts, groups, torch.float32)
        by_torch, right = moe_on_processor._routes_by_torch(experts, groups)
        assert rows == by_torch == int((experts >= 0).sum())
        for one, other in zip(found, right, strict=True):
            assert one.dtype == other.dtype == torch.int32
            assert torch.equal(one, other)


@pytest.mark.parametrize("wrong", [-2, 4, 2**40])
def test_the_first_expert_that_is_none_is_named(wrong: int) -> None:
    experts = torch.tensor([[0, -1], [3, wrong], [9, 1]])
    words = re.escape(f"experts[1, 1]={wrong}: accepted are experts from 0 to 3, and -1")
    for routes in (
        lambda: moe_on_processor.routed(experts, 4, torch.float32),
        lambda: moe_on_processor._routes_by_torch(experts, 4),
    ):
        with pytest.raises(ArgumentError, match=words):
            routes()
