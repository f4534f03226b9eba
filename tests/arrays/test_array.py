"""`Array` as an operand of `@`, and as memory that other libraries look at."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import Device
from tilewright.errors import OperandError, ShapeError
from tilewright.facts.device import FEATURES


@pytest.fixture(params=["host", "opencl"])
def where(request: pytest.FixtureRequest) -> Any:
    # "host" draws no driver: what is asked of its memory holds where there is no OpenCL.
    return "host" if request.param == "host" else request.getfixturevalue("opencl_device")


def drawn(*shape: int, dtype: str = "float32", seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_at_is_matmul_with_another_and_with_numpys_on_either_side(where: Any, dtype: str) -> None:
    if where != "host" and dtype not in where.dtypes:
        pytest.skip(f"{where.id} has no {dtype}")
    x, y = drawn(5, 7, dtype=dtype), drawn(7, 3, dtype=dtype, seed=1)
    a, b = (tw.asarray(one, device=where) for one in (x, y))
    for left, right in ((a, b), (b.T, a.T)):
        made, called = left @ right, tw.matmul(left, right)
        assert type(made) is type(called)
        np.testing.assert_array_equal(np.asarray(made), np.asarray(called))
        np.testing.assert_allclose(
            np.asarray(made), np.asarray(left) @ np.asarray(right), rtol=1e-5, atol=1e-6
        )
    stack = a @ tw.asarray(drawn(4, 7, 2, dtype=dtype), device=where)
    assert stack.shape == (4, 5, 2)


@pytest.mark.parametrize("sides", ["array @ numpy", "numpy @ array", "numpy.matmul"])
def test_numpys_arrays_are_taken_as_matmul_takes_them(sides: str) -> None:
    x, y = drawn(5, 7), drawn(7, 3, seed=1)
    a, b = (x, tw.asarray(y, device="host"))
    if sides == "array @ numpy":
        a, b = tw.asarray(x, device="host"), y
    made = np.matmul(a, b) if sides == "numpy.matmul" else a @ b
    assert type(made) is type(tw.matmul(a, b))
    np.testing.assert_allclose(np.asarray(made), x @ y, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("other", [[[1.0]], None, 3.0, "x", object], ids=repr)
def test_what_is_no_array_is_left_to_the_other_side(other: Any) -> None:
    a = tw.asarray(drawn(1, 1), device="host")
    assert a.__matmul__(other) is NotImplemented
    assert a.__rmatmul__(other) is NotImplemented
    with pytest.raises(TypeError):
        a @ other

    class Mine:
        def __rmatmul__(self, left: Any) -> str:
            return "mine"

    assert a @ Mine() == "mine"


def test_at_raises_what_matmul_raises() -> None:
    a = tw.asarray(drawn(2, 3), device="host")
    with pytest.raises(ShapeError, match="b"):
        a @ a
    with pytest.raises(ShapeError):
        drawn(2, 3) @ a


def test_other_functions_of_numpy_get_a_copy() -> None:
    x = drawn(4, 4)
    a = tw.asarray(x, device="host")
    np.testing.assert_array_equal(np.add(a, 1), x + 1)
    np.testing.assert_array_equal(x * a, x * x)
    np.testing.assert_array_equal(np.matmul(a, x, out=np.empty_like(x)), np.matmul(x, x))
    assert np.add.reduce(a).shape == (4,)
    with pytest.raises(TypeError):
        np.add(x, x, out=a)


# DLPack.


def torch_view(array: Any) -> Any:
    return pytest.importorskip("torch").from_dlpack(array)


@pytest.mark.parametrize("view", [np.from_dlpack, torch_view], ids=["numpy", "torch"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64"])
def test_a_view_has_the_elements_and_writes_reach_the_array(
    view: Callable[[Any], Any], dtype: str
) -> None:
    x = drawn(3, 5, dtype=dtype)
    for array, wanted in ((tw.asarray(x, device="host"), x), (tw.asarray(x, device="host").T, x.T)):
        shown = view(array)
        np.testing.assert_array_equal(np.asarray(shown), wanted)
        shown[1, 2] = 7
        assert np.asarray(array)[1, 2] == 7


@pytest.mark.parametrize("view", [np.from_dlpack, torch_view], ids=["numpy", "torch"])
def test_a_view_keeps_the_memory_alive_and_mapped_until_the_last_is_gone(
    view: Callable[[Any], Any], where: Any
) -> None:
    x = drawn(64, 65)
    array = tw.asarray(x, device=where)
    first, second = view(array), view(array.T)
    if where != "host":
        assert array.memory.mapped
        with pytest.raises(OperandError, match=r"mapped.*__dlpack__"):
            array @ array.T
        with pytest.raises(OperandError, match=r"mapped.*__dlpack__"):
            array.map().__enter__()
    del first
    gc.collect()
    assert array.memory.mapped is (where != "host")
    second[0, 0] = 5
    del second
    gc.collect()
    assert not array.memory.mapped
    x[0, 0] = 5
    np.testing.assert_allclose(np.asarray(array @ array.T), x @ x.T, rtol=1e-4, atol=1e-4)
    last = view(array)
    del array
    gc.collect()
    np.testing.assert_array_equal(np.asarray(last), x)


def test_a_capsule_that_nobody_takes_frees_the_memory(where: Any) -> None:
    array = tw.asarray(drawn(8, 8), device=where)
    capsule = array.__dlpack__(max_version=(1, 0))
    del capsule
    gc.collect()
    assert not array.memory.mapped


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1, 1)])
def test_scalars_and_sizes_of_nothing_are_exported(shape: tuple[int, ...], where: Any) -> None:
    assert np.from_dlpack(tw.empty(shape, device=where)).shape == shape


def test_a_copy_is_one_and_leaves_the_array_free(where: Any) -> None:
    x = drawn(4, 6)
    array = tw.asarray(x, device=where)
    copy = np.from_dlpack(array, copy=True)
    assert not array.memory.mapped
    copy[...] = -1
    np.testing.assert_array_equal(np.asarray(array), x)
    assert array.__dlpack_device__() == (1, 0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"stream": 1}, "stream=1"),
        ({"dl_device": (2, 0)}, r"dl_device=\(2, 0\).*accepted is dl_device=\(1, 0\)"),
    ],
)
def test_what_cannot_be_exported_is_refused_by_name(
    options: dict[str, Any], words: str, where: Any
) -> None:
    with pytest.raises(BufferError, match=words):
        tw.asarray(drawn(2, 2), device=where).__dlpack__(**options)


def test_a_mapped_array_is_not_exported(where: Any) -> None:
    array = tw.asarray(drawn(2, 2), device=where)
    with array.map(), pytest.raises(BufferError, match="mapped"):
        np.from_dlpack(array)


def test_memory_that_only_a_device_reaches_is_copied_where_that_is_asked_for(
    opencl_device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = drawn(3, 2)
    array = tw.asarray(x, device=opencl_device)
    shared = {"unified_memory", "svm_system"}
    assert shared <= set(FEATURES)
    apart = replace(opencl_device, features=opencl_device.features - shared)
    monkeypatch.setattr(array.memory, "device", apart)
    assert array.__dlpack_device__() == (4, 0)
    for options in ({}, {"copy": False, "dl_device": (1, 0)}, {"dl_device": (4, 0)}):
        with pytest.raises(BufferError, match="the device's own"):
            array.__dlpack__(**options)
    np.testing.assert_array_equal(np.from_dlpack(array, device="cpu"), x)
    assert not array.memory.mapped
