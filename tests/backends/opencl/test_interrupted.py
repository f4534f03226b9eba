"""Ctrl-C in the middle of a launch: no kernel outlives the call in memory of its caller's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright import Device, onebit
from tilewright.backends.opencl import runtime

ENQUEUES = ("enqueue_nd_range_kernel", "enqueue_copy", "enqueue_map_buffer")
SIZES = [(90, 70, 50), (33, 200, 41), (1, 5, 300), (64, 64, 64)]
Call = Callable[[], Any]


class Interrupts:
    """Raises KeyboardInterrupt once, behind the enqueue or the argument of this number."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch
        self.left = -1
        self.events: list[Any] = []

    def behind(self, owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def call(*arguments: Any, **options: Any) -> Any:
            result = real(*arguments, **options)
            if name.startswith("enqueue"):
                self.events.append(result[1] if isinstance(result, tuple) else result)
            self.left -= 1
            if self.left == -1:
                raise KeyboardInterrupt
            return result

        self.monkeypatch.setattr(owner, name, call)

    def come(self, call: Call) -> Iterator[int]:
        """The call, interrupted at one place after another until it gets through."""
        for number in range(500):
            self.left = number
            self.events.clear()
            try:
                call()
            except KeyboardInterrupt:
                yield number
            else:
                return
        pytest.fail("the call never got through")

    def count(self, call: Call, check: Call) -> int:
        """Interrupt everywhere; nothing may run behind it, and later results are right."""
        numbers = []
        for number in self.come(call):
            complete = runtime.pyopencl().command_execution_status.COMPLETE
            states = [event.command_execution_status for event in self.events]
            assert all(state <= complete for state in states), (number, states)
            check()
            numbers.append(number)
        return len(numbers)


@pytest.fixture
def interrupts(monkeypatch: pytest.MonkeyPatch) -> Interrupts:
    return Interrupts(monkeypatch)


def seeded(*shape: int) -> Any:
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


def dense(device: Device, kernel: str) -> tuple[Call, Call]:
    """One plan, two sets of operands."""
    a, b, bias, out = seeded(2, 130, 72), seeded(2, 72, 90), seeded(90), np.empty((2, 130, 90), "f")

    def call(number: int = 0) -> None:
        x, y, z = a[number], b[number], out[number]
        tilewright.matmul(x, y, out=z, bias=bias, device=device, kernel=kernel)

    def check() -> None:
        out[...] = np.nan
        call(1)
        call(0)
        np.testing.assert_allclose(out, a @ b + bias, atol=1e-4)

    return call, check


def batch(device: Device) -> tuple[Call, Call]:
    """Equal products in one launch."""
    a, b = seeded(40, 9, 12), seeded(40, 12, 8)
    out = np.empty((40, 9, 8), np.float32)
    call = lambda: tilewright.matmul(a, b, out=out, device=device, kernel="panel")  # noqa: E731

    def check() -> None:
        call()
        np.testing.assert_allclose(out, a @ b, atol=1e-4)

    return call, check


def grouped(device: Device, *, bound: bool) -> tuple[Call, Call]:
    a = [seeded(m, k) for m, _, k in SIZES]
    b = [seeded(k, n) for _, n, k in SIZES]
    out = [np.empty((m, n), np.float32) for m, n, _ in SIZES]
    call: Call = lambda: tilewright.grouped_matmul(a, b, out=out, device=device)  # noqa: E731
    if bound:
        plan = tilewright.plan_grouped(*map(list, zip(*SIZES, strict=True)), device=device)
        call = plan.bind(a, b, out=out)

    def check() -> None:
        other = tilewright.grouped_matmul(b[:1], [x.T for x in b[:1]], device=device)
        np.testing.assert_allclose(other[0], b[0] @ b[0].T, atol=1e-4)
        call()
        for x, y, z in zip(a, b, out, strict=True):
            np.testing.assert_allclose(z, x @ y, atol=1e-4)

    return call, check


def bits(device: Device, out: str) -> tuple[Call, Call]:
    x, y = np.sign(seeded(70, 200)), np.sign(seeded(130, 200))
    a, b = onebit.pack(x).to(device), onebit.pack(y).to(device)
    options: dict[str, Any] = {"threshold": np.zeros(130)} if out == "bits" else {"dtype": out}
    call = lambda: onebit.matmul(a, b, device=device, **options)  # noqa: E731

    def check() -> None:
        wanted = (x @ y.T).astype(int)
        found = call()
        if out == "bits":
            found, wanted = onebit.unpack(found), np.where(wanted >= 0, 1, -1)
        np.testing.assert_array_equal(np.asarray(found), wanted)

    return call, check


CALLS: dict[str, Callable[[Device], tuple[Call, Call]]] = {
    "dense-naive": lambda device: dense(device, "naive"),
    "dense-panel": lambda device: dense(device, "panel"),
    "dense-image": lambda device: dense(device, "image_b"),
    "batch": batch,
    "grouped": lambda device: grouped(device, bound=False),
    "bound": lambda device: grouped(device, bound=True),
    "bits": lambda device: bits(device, "bits"),
    "reals": lambda device: bits(device, "float32"),
}


@pytest.mark.parametrize("name", CALLS)
def test_nothing_runs_on_behind_an_interrupted_call(
    name: str, device: Device, interrupts: Interrupts
) -> None:
    call, check = CALLS[name](device)
    check()
    for enqueue in ENQUEUES:
        interrupts.behind(runtime.pyopencl(), enqueue)
    assert interrupts.count(call, check) >= 1


@pytest.mark.parametrize("name", ["dense-naive", "dense-panel", "grouped", "bound"])
def test_arguments_that_were_half_set_are_set_again(
    name: str, device: Device, interrupts: Interrupts
) -> None:
    _, check = CALLS[name](device)
    interrupts.behind(runtime.pyopencl().Kernel, "set_arg")

    def after_another() -> None:
        wanted, interrupts.left = interrupts.left, -1
        check()  # other products' arguments are in the kernels
        interrupts.left = wanted
        check()

    check()
    assert interrupts.count(after_another, check) >= 1
