"""torch's FlopCounterMode counts our products as it counts its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.utils import flop_counter  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

import tilewright as tw  # noqa: E402
from tests.support.tensor_products import PRODUCTS, operands  # noqa: E402
from tests.support.torch_places import DEVICES  # noqa: E402
from tilewright.backends.cuda.machine import addresses  # noqa: E402

ONE = 2 * 6 * 4 * 5  # of [6, 4] by [4, 5]
FLOPS = dict.fromkeys(PRODUCTS, ONE) | {"batch": 2 * ONE, "list": ONE + ONE // 3}


@pytest.fixture(autouse=True)
def untold(monkeypatch: pytest.MonkeyPatch) -> None:
    """New counters know none of our operators, as in a new process."""
    for packet in tuple(flop_counter.flop_registry):
        if str(packet).startswith("tilewright."):
            monkeypatch.delitem(flop_counter.flop_registry, packet)


def counted(call: Any) -> int:
    with FlopCounterMode(display=False) as counter:
        call()
    return int(counter.get_total_flops())


@pytest.mark.parametrize("where", DEVICES)
@pytest.mark.parametrize("name", PRODUCTS)
def test_a_product_counts_what_it_multiplies_and_its_gradients_twice_that(
    name: str, where: str
) -> None:
    given = operands(where, learn=True)

    def forward() -> Any:
        found = PRODUCTS[name](*given)
        return sum(one.sum() for one in (found if isinstance(found, list) else [found]))

    assert counted(forward) == FLOPS[name]
    of_bias = 2 * 6 * 5 if name == "rows" else 0  # a product with ones
    assert counted(lambda: forward().backward()) == 3 * FLOPS[name] + of_bias


@pytest.mark.parametrize("where", DEVICES)
@pytest.mark.parametrize("wanted", [(1, 1, 1), (1, 0, 0), (0, 1, 0), (0, 0, 1)])
def test_a_layer_of_experts_counts_every_chosen_expert_and_the_gradients_that_are_wanted(
    wanted: tuple[int, int, int], where: str
) -> None:
    tokens, chosen, d, h = 7, 2, 8, 6
    shapes = ((tokens, d), (4, d, 2 * h), (4, h, d))
    x, up, down = (
        torch.randn(shape, device=where).requires_grad_(bool(one))
        for shape, one in zip(shapes, wanted, strict=True)
    )
    experts = torch.randint(4, (tokens, chosen), device=where)
    weights = torch.rand(tokens, chosen, device=where)

    def forward() -> Any:
        return tw.moe(x, up, down, experts, weights).sum()

    of_up, of_down = 2 * tokens * chosen * d * 2 * h, 2 * tokens * chosen * h * d
    assert counted(forward) == of_up + of_down
    of_x, learns_up, learns_down = wanted
    backward = of_up * (of_x + learns_up) + of_down * (1 + learns_down)
    assert counted(lambda: forward().backward()) == of_up + of_down + backward


def test_products_of_eight_bits_are_counted() -> None:
    x = torch.randn(6, 128).to(torch.float8_e4m3fn)
    w = torch.randn(2, 128, 5).to(torch.float8_e4m3fn)
    ends = torch.tensor([2, 6], dtype=torch.int32)
    scales = {"scale_a": torch.ones(6, 1), "scale_b": torch.ones(2, 1, 5)}
    assert counted(lambda: tw.ragged_matmul(x, w, ends, **scales)) == 2 * 6 * 128 * 5


def layer(where: str, learn: bool = False) -> Any:
    """A layer of experts, and what it multiplies."""
    x, up, down = (
        torch.randn(shape, device=where).requires_grad_(learn)
        for shape in ((7, 8), (4, 8, 12), (4, 6, 8))
    )
    experts = torch.zeros(7, 2, dtype=torch.int64, device=where)
    return tw.moe(x, up, down, experts, torch.ones(7, 2, device=where)).sum()


OF_LAYER = 2 * 7 * 2 * (8 * 12 + 6 * 8)
CALLS: dict[str, tuple[Callable[[str, bool], Any], int]] = {
    "matmul": (lambda where, learn: tw.matmul(*operands(where, learn=learn)[:2]), ONE),
    "list": (lambda where, learn: PRODUCTS["products"](*operands(where, learn=learn))[0], ONE),
    "rows": (lambda where, learn: PRODUCTS["rows"](*operands(where, learn=learn)), ONE),
    "experts": (layer, OF_LAYER),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", CALLS)
def test_tensors_without_memory_are_counted(name: str) -> None:
    call, flops = CALLS[name]
    addresses._layout.cache_clear()
    assert counted(lambda: call("meta", False)) == flops

    def pretended() -> None:
        with FakeTensorMode():
            call("cpu", False)

    assert counted(pretended) == flops
    with FakeTensorMode():
        assert counted(lambda: call("cpu", False)) == flops


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("where", DEVICES)
@pytest.mark.parametrize("name", CALLS)
def test_a_backward_pass_is_counted_by_itself(name: str, where: str, compiled: bool) -> None:
    call, flops = CALLS[name]
    if compiled:
        torch.compiler.reset()
        call = torch.compile(call, backend="aot_eager")
    loss = call(where, True).sum()
    of_bias = 2 * 6 * 5 if name == "rows" else 0  # a product with ones
    assert counted(loss.backward) == 2 * flops + of_bias


class Written(torch.nn.Module):
    def forward(self, x: Any, w: Any, ends: Any) -> Any:
        return tw.ragged_matmul(x, w, ends) + tw.matmul(x, w[0])


@pytest.mark.parametrize("strict", [False, True])
def test_an_exported_program_is_counted(strict: bool) -> None:
    given = torch.ones(6, 4), torch.ones(2, 4, 5), torch.tensor([2, 6])
    program = torch.export.export(Written(), given, strict=strict).module()
    assert counted(lambda: program(*given)) == 2 * ONE


def test_what_somebody_says_of_our_operators_is_kept() -> None:
    given = torch.ones(6, 4), torch.ones(2, 4, 5), torch.tensor([2, 6])
    own: Any = {torch.ops.tilewright.ragged_rows: lambda *_, **__: 1}
    for _ in range(2):
        with FlopCounterMode(display=False, custom_mapping=own) as counter:
            tw.ragged_matmul(*given)
        assert counter.get_total_flops() == 1
        assert counted(lambda: tw.ragged_matmul(*given)) == ONE


def test_a_first_product_under_a_counter_is_counted_and_other_ones_load_no_watcher() -> None:
    """Neither counters nor compilers, which take a second to load."""
    script = (
        "import sys, torch, tilewright as tw\n"
        "x, w, ends = torch.ones(6, 4), torch.ones(2, 4, 5), torch.tensor([2, 6])\n"
        "if sys.argv[1:]:\n"
        "    from torch.utils.flop_counter import FlopCounterMode\n"
        "    with FlopCounterMode(display=False) as counter:\n"
        "        tw.ragged_matmul(x, w, ends)\n"
        "    print(counter.get_total_flops())\n"
        "else:\n"
        "    tw.ragged_matmul(x, w, ends)\n"
        "    print({'torch.utils.flop_counter', 'torch._dynamo'} & {*sys.modules})\n"
    )
    printed = [
        subprocess.run(
            [sys.executable, "-c", script, *options], capture_output=True, text=True, check=True
        ).stdout.strip()
        for options in (["counted"], [])
    ]
    assert printed == [str(ONE), "set()"]
