"""Layers of experts spread over processes are the layer of one process, gradients too."""

from __future__ import annotations

import copy
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
dist = pytest.importorskip("torch.distributed")
if not dist.is_available() or not dist.is_gloo_available():
    pytest.skip("torch has no gloo", allow_module_level=True)

import tilewright as tw  # noqa: E402
from tests.support import experts_apart as apart  # noqa: E402
from tilewright.distributed import ExpertParallel  # noqa: E402
from tilewright.errors import ArgumentError, DeviceError, OperandError  # noqa: E402
from tilewright.pytorch import GroupedLinear, MoE  # noqa: E402

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What each of four processes told; two of them are a group of their own as well."""
    if not hasattr(os, "fork"):
        pytest.skip("no fork here")
    folder = tmp_path_factory.mktemp("group")
    command = [sys.executable, "-m", "tests.support.experts_apart", str(folder)]
    with subprocess.Popen(command, cwd=ROOT, start_new_session=True) as started:
        try:
            started.wait(timeout=600)
        finally:
            with suppress(ProcessLookupError):  # what forked hangs where one of four is lost
                os.killpg(started.pid, signal.SIGKILL)
    return [
        (folder / f"{rank}.log").read_text(encoding="utf-8") for rank in range(max(apart.RANKS))
    ]


@pytest.mark.parametrize("count", apart.RANKS)
@pytest.mark.parametrize("case", apart.CASES, ids=lambda case: case.__name__)
def test_processes_together_are_one(case: apart.Case, count: int, told: list[str]) -> None:
    for printed in told[:count]:
        assert f"right: {case.__name__} {count}\n" in printed, printed


def test_a_process_that_dies_ends_the_others(told: list[str]) -> None:
    for printed in told[:-1]:
        assert f"right: {apart.LAST.__name__} {len(told)}\n" in printed, printed


@pytest.fixture
def alone() -> Iterator[Any]:
    """A group of this process."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield dist.group.WORLD
    dist.destroy_process_group()


def test_without_a_group_one_is_asked_for() -> None:
    with pytest.raises(DeviceError, match=r"group=None: .*init_process_group"):
        ExpertParallel(MoE(2, 8, 4, top=1))


def test_a_compiler_leaves_calls_out_and_says_why(alone: Any) -> None:
    layer = ExpertParallel(MoE(4, 8, 4, top=2))
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), layer, torch.nn.Linear(8, 8))
    x = torch.randn(5, 8)
    compiled = torch.compile(model, backend="eager")
    torch.testing.assert_close(compiled(x), model(x))
    torch.compiler.reset()
    with pytest.raises(Exception, match="reads how many rows come"):
        torch.compile(model, backend="eager", fullgraph=True)(x)


@pytest.mark.parametrize("kind", [MoE, GroupedLinear])
def test_gradients_of_gradients_are_refused_however_they_are_asked_for(
    kind: Any, alone: Any
) -> None:
    x = torch.randn(5, 8, requires_grad=True)
    if kind is MoE:
        out = ExpertParallel(MoE(4, 8, 4, top=2))(x)
    else:
        out = ExpertParallel(GroupedLinear(2, 8, 4))(x, torch.tensor([2, 5]))
    with pytest.raises(NotImplementedError, match="create_graph=True"):
        torch.autograd.grad(out.square().sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="create_graph=True"):
        out.square().sum().backward(create_graph=True)


@pytest.mark.usefixtures("compiled_for_all")
def test_copies_share_the_group_and_pickles_are_refused(alone: Any) -> None:
    layer = ExpertParallel(MoE(4, 8, 4, top=2))
    x = torch.randn(5, 8)
    twin = copy.deepcopy(layer)
    assert torch.equal(twin(x), layer(x))
    assert twin.layer.w_up is not layer.layer.w_up
    with pytest.raises(OperandError, match="whole_state_dict"):
        pickle.dumps(layer)
    assert "owned=[0, 1, 2, 3], ranks=1" in repr(layer)


def test_the_layer_that_was_given_stays_as_it_is(alone: Any) -> None:
    whole = MoE(4, 8, 4, top=2)
    layer = ExpertParallel(whole, placement=[0, 0, 0, 0])
    with torch.no_grad():
        for one in layer.parameters():
            one.zero_()
    assert all(bool(one.any()) for one in whole.parameters())


def test_arguments_that_are_none_are_named(alone: Any) -> None:
    whole = MoE(4, 8, 4, top=2)

    def dealt(experts: int, ranks: int) -> Any:
        return tw.split([9] * experts, [1] * experts, [1] * experts, ranks)

    wrong: list[tuple[tuple[Any, ...], dict[str, Any], type[Exception], str]] = [
        ((torch.nn.Linear(2, 2),), {}, OperandError, "layer=Linear: accepted are"),
        ((whole, "gloo"), {}, ArgumentError, "group='gloo': accepted are None"),
        ((whole, dist.GroupMember.NON_GROUP_MEMBER), {}, ArgumentError, "without this process"),
        ((whole,), {"placement": [0, 0, 0]}, ArgumentError, "placement: 3 entries; accepted are"),
        ((whole,), {"placement": [0, 0, 0, 1]}, ArgumentError, "placement: 1; accepted are"),
        ((whole,), {"placement": "even"}, ArgumentError, "placement='even'"),
        (
            (whole,),
            {"placement": dealt(3, 1)},
            ArgumentError,
            "expert 3",
        ),
        ((whole,), {"placement": dealt(5, 1)}, ArgumentError, "is none"),
        (
            (whole,),
            {"placement": dealt(4, 3)},
            ArgumentError,
            "3 shares",
        ),
    ]
    for given, named, error, words in wrong:
        with pytest.raises(error, match=words):
            ExpertParallel(*given, **named)
    layer = ExpertParallel(whole)
    for given, error, words in [
        ((torch.zeros(2, 8), torch.zeros(2, 2)), ArgumentError, "both, or neither"),
        (([1.0],), OperandError, "x=list"),
        ((torch.zeros(2, 8), [0], torch.ones(2, 2)), OperandError, "experts=list"),
    ]:
        with pytest.raises(error, match=words):
            layer(*given)
    linear = ExpertParallel(GroupedLinear(3, 8, 4))
    with pytest.raises(OperandError, match="offsets="):
        linear(torch.zeros(2, 8), torch.zeros(3))
