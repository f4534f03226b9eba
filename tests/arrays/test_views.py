"""What is asked of other libraries' arrays, of objects that stand for them."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from tilewright.arrays.views import on_gpu


@pytest.mark.parametrize(
    ("kind", "there"),
    # DLPack's: the host, CUDA, memory of the host that CUDA pinned, OpenCL, ROCm, pinned, managed.
    [(1, False), (2, True), (3, False), (4, False), (10, True), (11, False), (13, True)],
)
def test_an_array_is_on_a_gpu_by_the_kind_that_dlpack_gives_not_by_its_number(
    kind: int, there: bool
) -> None:
    for number in (0, 1, 2, 10):
        assert on_gpu(SimpleNamespace(__dlpack_device__=lambda n=number: (kind, n))) is there


def test_what_says_whether_it_is_cudas_is_believed_and_numpys_is_not_asked() -> None:
    assert on_gpu(SimpleNamespace(is_cuda=True))
    assert not on_gpu(SimpleNamespace(is_cuda=False, __dlpack_device__=lambda: (2, 0)))
    assert not on_gpu(np.zeros(3))
    assert not on_gpu([1.0])
