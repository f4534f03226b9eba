"""What is asked of other libraries' arrays, of objects that stand for them."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import tilewright
from tests.support import tiny_dlpack
from tilewright import Device
from tilewright.arrays.views import host_array, on_gpu
from tilewright.errors import OperandError


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


def test_whatever_gives_its_elements_is_copied_from_and_what_gives_none_is_named() -> None:
    drawn = np.random.default_rng(4).standard_normal((3, 5)).astype(np.float32)
    for held in (drawn, drawn[::-1, ::2], drawn.astype(np.float16)):
        found = host_array(tiny_dlpack.Tensor(held), "array")
        assert type(found) is np.ndarray
        assert found.dtype == held.dtype
        np.testing.assert_array_equal(found, held)
    np.testing.assert_array_equal(host_array([[1, 2], [3, 4]], "array"), [[1, 2], [3, 4]])
    ours = tilewright.asarray(drawn, device="host")
    np.testing.assert_array_equal(host_array(ours, "array"), drawn)
    for wrong in (tiny_dlpack.Broken(drawn), np.ma.masked_array(drawn), [[1], [2, 3]]):
        with pytest.raises(OperandError, match=r"^array"):
            host_array(wrong, "array")


def test_what_gives_its_elements_to_dlpack_alone_is_moved_to_a_device(intel: Device) -> None:
    drawn = np.arange(12, dtype=np.float32).reshape(3, 4)
    for where in ("host", intel):
        moved = tilewright.asarray(tiny_dlpack.Tensor(drawn), device=where)
        np.testing.assert_array_equal(np.asarray(moved), drawn)
