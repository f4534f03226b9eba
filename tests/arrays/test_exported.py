"""Tensors are read as the numbers that they are, or refused by name where memory has none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright import RaggedBatch, onebit
from tilewright.errors import OperandError, TilewrightError

torch = pytest.importorskip("torch")
TwoTensor = pytest.importorskip("torch.testing._internal.two_tensor").TwoTensor

COUNT = 9
RIGHT = np.arange(15, dtype=np.float32).reshape(5, 3)


def mixed(x: Any) -> Any:
    """The product of a tensor that stands last among arrays of NumPy."""
    a = [*[np.ones((4, 5), np.float32)] * (COUNT - 1), x]
    return tilewright.grouped_matmul(a, [RIGHT] * COUNT)[-1]


def bits(x: Any) -> Any:
    return onebit.unpack(onebit.pack(x))


def copied(x: Any) -> Any:
    return RaggedBatch.from_list([x])[0]


READS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "beside NumPy's": (mixed, lambda x: x @ RIGHT),
    "packed": (bits, np.sign),
    "copied": (copied, lambda x: x),
}


def values() -> Any:
    torch.manual_seed(3)
    return torch.randn(4, 5) + 0.01


@pytest.mark.parametrize("read", READS)
def test_what_memory_holds_negated_is_read_with_its_signs(read: str) -> None:
    x = torch.complex(values(), values()).conj().imag
    assert x.is_neg()
    made, wanted = READS[read]
    np.testing.assert_allclose(made(x), wanted(x.resolve_neg().numpy()), rtol=1e-5)


def fake(x: Any) -> Any:
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode().from_tensor(x)


def shrunk(x: Any) -> Any:
    x = x.clone()
    x.untyped_storage().resize_(16)
    return x


ODD: dict[str, Callable[[Any], Any]] = {
    "fake": fake,
    "of two": lambda x: TwoTensor(x, x.clone()),
    "on no device": lambda x: x.to("meta"),
    "nested": lambda x: torch.nested.nested_tensor([x]),
    "nested, jagged": lambda x: torch.nested.nested_tensor([x], layout=torch.jagged),
    "sparse": lambda x: x.to_sparse(),
    "of oneDNN's": lambda x: x.to_mkldnn(),
    "cut off": shrunk,
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("odd", ODD)
def test_what_has_no_such_memory_is_refused_by_name(odd: str, read: str) -> None:
    if odd == "of oneDNN's" and not torch.backends.mkldnn.is_available():
        pytest.skip("this build of torch has none")
    x, said = ODD[odd](values()), ""
    try:
        READS[read][0](x)
    except OperandError as error:
        said = str(error)
    del x  # a report of a failure would print it, and with it whatever lies there
    assert said.startswith({"packed": "x", "copied": "matrices[0]"}.get(read, f"a[{COUNT - 1}]"))
    assert said.count("__dlpack__ failed") <= 1


def test_what_a_transform_maps_over_is_no_array_to_pack() -> None:
    with pytest.raises(OperandError, match=r"^x"):
        torch.func.vmap(lambda x: torch.as_tensor(bits(x)))(values()[None])


def test_a_result_whose_memory_holds_the_negative_is_refused_and_not_written() -> None:
    out = torch.complex(values()[:, :3], values()[:, :3]).conj().imag
    before = out.clone()
    given = np.ones((4, 5), np.float32)
    with pytest.raises(TilewrightError, match=r"^out"):
        tilewright.grouped_matmul([given] * 2, [RIGHT] * 2, out=[np.empty((4, 3), np.float32), out])
    assert torch.equal(out, before)


@pytest.mark.parametrize("name", ["a", "b", "bias", "out"])
def test_plans_are_not_bound_to_tensors_without_numbers(name: str) -> None:
    given = {"a": torch.ones(4, 5), "b": torch.ones(5, 3)}
    given |= {"bias": torch.ones(3), "out": torch.ones(4, 3)}
    given[name] = fake(given[name])
    lists = {key: [one] for key, one in given.items()}
    with pytest.raises(OperandError, match=rf"^{name}\[0\]"):
        tilewright.plan_grouped([4], [3], [5], device="host").bind(**lists)


class OfDlpack:
    """An array that has DLPack's two methods and no more; `fault` is raised where it is read."""

    def __init__(self, held: Any, fault: type[Exception] | None = None) -> None:
        self.held, self.fault = held, fault

    def __dlpack__(self, **options: Any) -> Any:
        if self.fault is not None:
            raise self.fault("out of order")
        return self.held.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.held.__dlpack_device__()


@pytest.mark.parametrize("read", READS)
def test_an_array_of_dlpack_alone_is_read_and_what_it_raises_is_told(read: str) -> None:
    x = values().numpy()
    made, wanted = READS[read]
    np.testing.assert_allclose(made(OfDlpack(x)), wanted(x), rtol=1e-5)
    for fault in (BufferError, RuntimeError, TypeError, ValueError):
        with pytest.raises(OperandError, match="__dlpack__ failed: out of order"):
            made(OfDlpack(x, fault))
