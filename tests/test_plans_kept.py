"""Plans are kept by what they were made of; a thread that forgets the oldest disturbs no other."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
from cases import Case, operands
from triton_proof import CUDA_H200, work_of

from tilewright import grouped, plan_grouped
from tilewright.backends.cuda.portable import grouped as portable


class Forgetful(OrderedDict[bytes, Any]):
    """Another thread removes whatever is looked up, as soon as it was looked up."""

    def get(self, key: bytes, default: Any = None) -> Any:
        return super().pop(key, default)


def test_a_plan_forgotten_by_another_thread_meanwhile_is_still_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grouped, "_plans", Forgetful())
    m, n, k = np.random.default_rng(0).integers(1, 50, (3, 20))
    first = plan_grouped(m, n, k, device="host")
    assert plan_grouped(m, n, k, device="host") is first
    assert plan_grouped(m, n, k, device="host") is first


def test_so_is_a_layout_of_the_triton_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portable, "_layouts", Forgetful())
    work = work_of([operands(Case(300, 200, 100), 0)])
    proposals = [portable.TritonGrouped().propose(work, CUDA_H200) for _ in range(3)]
    assert len({getattr(proposal, "why", proposal) for proposal in proposals}) == 1
    assert len(portable._layouts) == 1


def test_the_plan_used_last_is_forgotten_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grouped, "_plans", OrderedDict())
    monkeypatch.setattr(grouped, "_MOST_PLANS", 2)
    first, _ = (plan_grouped([m], [4], [4], device="host") for m in (1, 2))
    assert plan_grouped([1], [4], [4], device="host") is first
    plan_grouped([3], [4], [4], device="host")
    assert plan_grouped([1], [4], [4], device="host") is first
