"""A recorded network called again: like calls are replayed, unlike ones checked in full."""

from __future__ import annotations

import threading
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from tilewright.nn.again import Again  # noqa: E402


class Home:
    """Memory that one tensor is planned in."""

    def __init__(self) -> None:
        self.planned: Any = None
        self.captured = False
        self.steps: list[str] = []

    def is_planned(self, value: Any) -> bool:
        return value is self.planned

    def is_captured(self) -> bool:
        return self.captured

    def begin(self) -> None:
        self.steps.append("begin")

    def end(self) -> None:
        self.steps.append("end")


class Doubled:
    """A network that doubles what it reads, recorded."""

    def __init__(self, dtype: Any = None) -> None:
        self.home = Home()
        self.x = torch.zeros(2, 3, dtype=dtype or torch.float32)
        self.y = torch.zeros(2, 3, dtype=self.x.dtype)
        replay = self.replay
        self.again = Again(self.home, threading.RLock(), replay, [self.x], [self.y])

    def replay(self) -> None:
        self.home.steps.append("replay")
        self.y.data.copy_(2 * self.x)


def test_a_like_call_is_copied_in_replayed_and_copied_out() -> None:
    net = Doubled()
    x = torch.arange(6.0).view(2, 3)
    made = net.again((x,), None)
    assert torch.equal(made, 2 * x)
    assert made is not net.y
    assert net.home.steps == ["begin", "replay", "end"]
    out = torch.empty(2, 3)
    assert net.again((x + 1,), out) is out
    assert torch.equal(out, 2 * (x + 1))
    assert torch.equal(made, 2 * x)


def test_the_networks_own_memory_is_not_copied() -> None:
    net = Doubled()
    net.x.fill_(3)
    assert net.again((net.x,), net.y) is net.y
    assert (net.y == 6).all()


@pytest.mark.parametrize("inside", ["made", "given", "run"])
def test_inference_mode_may_begin_or_end_anywhere(inside: str) -> None:
    with torch.inference_mode(inside == "made"):
        net = Doubled()
    with torch.inference_mode(inside == "given"):
        x, out = torch.ones(2, 3), torch.empty(2, 3)
    with torch.inference_mode(inside == "run"):
        assert net.again((x,), out) is out
    assert (out == 2).all()


def test_a_run_that_fails_is_marked_as_begun_for_whoever_comes_next() -> None:
    net = Doubled()

    def failing() -> None:
        raise RuntimeError("no memory")

    net.again = Again(net.home, threading.RLock(), failing, [net.x], [net.y])
    with pytest.raises(RuntimeError, match="no memory"):
        net.again((torch.ones(2, 3),), None)
    assert net.home.steps == ["begin", "end"]


def test_single_precision_is_rounded_to_halves() -> None:
    net = Doubled(torch.float16)
    made = net.again((torch.full((2, 3), 0.1),), None)
    assert made.dtype == torch.float16
    assert torch.equal(made, 2 * torch.full((2, 3), 0.1).half())


@pytest.mark.parametrize(
    "given",
    [
        (),
        (torch.zeros(2, 3), torch.zeros(2, 3)),
        (torch.zeros(3, 2),),
        (torch.zeros(2, 3, dtype=torch.float16),),
        (torch.zeros(2, 3, requires_grad=True),),
        (torch.nn.Parameter(torch.zeros(2, 3)),),
        (torch.zeros(2, 3).to_sparse(),),
        (torch.zeros(2, 3).numpy(),),
        ("x",),
    ],
    ids=lambda given: str([type(one).__name__ for one in given]),
)
def test_an_unlike_call_is_handed_back(given: tuple[Any, ...]) -> None:
    net = Doubled()
    assert net.again(given, None) is None
    assert net.home.steps == []


def test_planned_memory_captures_modes_and_other_outs_are_handed_back() -> None:
    net = Doubled()
    x = torch.zeros(2, 3)
    for out in (torch.zeros(3, 2), torch.zeros(2, 3).half(), (torch.zeros(2, 3),), x.numpy()):
        assert net.again((x,), out) is None
    net.home.planned = x
    assert net.again((x,), None) is None
    net.home.planned, net.home.captured = None, True
    assert net.again((x,), None) is None
    net.home.captured = False
    found = []
    torch.func.vmap(lambda row: found.append(net.again((x,), None)) or row)(torch.zeros(4, 2))
    assert found == [None]
    assert net.again((x,), None) is not None
