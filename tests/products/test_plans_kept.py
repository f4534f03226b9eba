"""Plans are kept by what they were made of; a thread that forgets the oldest disturbs no other."""

from __future__ import annotations

from threading import Thread

import numpy as np
import pytest

from tests.support.cases import Case, operands
from tests.support.triton_proof import CUDA_H200, work_of
from tilewright import forget, plan_grouped
from tilewright.backends.cuda.tiled import engine as portable
from tilewright.remember import shelves


def test_plans_of_batches_are_bounded_by_what_they_weigh() -> None:
    shelf = next(shelf for shelf in shelves() if shelf.name == "plans of batches")
    generator = np.random.default_rng(0)
    for _ in range(8):
        plan = plan_grouped(*generator.integers(1, 65, (3, 20_000)), device="opencl")
        assert plan.layout is not None
        made = (plan.layout.queue, plan.layout.m, plan.layout.n, plan.layout.k)
        columns = [getattr(part, "__dict__", {}).values() or [part] for part in made]
        assert plan.layout.bytes >= sum(c.nbytes for part in columns for c in part)
    before, most = shelf.bytes, shelf.most
    shelf.most = before // 2
    try:
        again = plan_grouped(*generator.integers(1, 65, (3, 20_000)), device="opencl")
        assert shelf.bytes <= shelf.most
        assert plan_grouped(again.m, again.n, again.k, device="opencl") is again
    finally:
        shelf.most = most


@pytest.mark.parametrize("threads", [4])
def test_a_plan_forgotten_by_another_thread_meanwhile_is_made_again(threads: int) -> None:
    m, n, k = np.random.default_rng(0).integers(1, 50, (3, 20))
    wrong: list[object] = []

    def plan() -> None:
        for _ in range(300):
            made = plan_grouped(m, n, k, device="host")
            if not np.array_equal(made.k, k):
                wrong.append(made)
            forget()

    running = [Thread(target=plan) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert not wrong


def test_a_layout_of_the_triton_kernels_forgotten_meanwhile_is_made_again() -> None:
    work = work_of([operands(Case(300, 200, 100), 0)])
    reasons = set()
    for forgotten in (False, False, True):
        if forgotten:
            portable._layouts.clear()
        reasons.add(portable.TritonGrouped().propose(work, CUDA_H200).reason)
    assert len(reasons) == 1
    assert len(portable._layouts)
