"""Arguments that have what is asked for and cannot give it: every error names the argument."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright import nn, onebit
from tilewright.errors import TilewrightError

torch = pytest.importorskip("torch")

ONES = np.ones((3, 3), np.float32)
LIST = [ONES, ONES]
TENSORS = [torch.ones(3, 3)] * 2
BITS = onebit.pack(ONES)


class WithoutFlat:
    """As JAX's arrays are: an attribute that is there and raises."""

    shape = (2, 3, 3)

    @property
    def flat(self) -> Any:
        raise NotImplementedError("no flat")


SEQUENCES = {
    "memoryview": memoryview(ONES),
    "memoryview of halves": memoryview(np.ones((3, 3), np.float16)),
    "memoryview of one": memoryview(np.array(1.0)),
    "array without flat": WithoutFlat(),
}
OF_LISTS: dict[str, Callable[[Any], Any]] = {
    "a": lambda x: tilewright.grouped_matmul(x, LIST),
    "b": lambda x: tilewright.grouped_matmul(LIST, x),
    "out": lambda x: tilewright.grouped_matmul(LIST, LIST, out=x),
    "bias": lambda x: tilewright.grouped_matmul(LIST, LIST, bias=x),
    "a with a device": lambda x: tilewright.grouped_matmul(x, LIST, device="host"),
    "b beside tensors": lambda x: tilewright.grouped_matmul(TENSORS, x),
    "a of a plan": lambda x: tilewright.plan_grouped([3] * 2, [3] * 2, [3] * 2).bind(x, LIST),
    "a of bits": lambda x: onebit.grouped_matmul(x, x),
    "matrices": lambda x: tilewright.RaggedBatch.from_list(x),
}


@pytest.mark.parametrize("value", SEQUENCES.values(), ids=SEQUENCES)
@pytest.mark.parametrize("name", OF_LISTS)
def test_what_cannot_be_cut_into_matrices_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(TilewrightError, match=rf"^{name.split()[0]}\b.*(accepted|must)"):
        OF_LISTS[name](value)


VALUES = {
    "parameter": torch.nn.Parameter(torch.ones(2)),
    "sparse": torch.ones(2).to_sparse(),
    "meta": torch.ones(2, device="meta"),
    "unlike lengths": [[1], [2, 3]],
    "mapping": {"a": 1},
    "array": np.ones(2),
}
OF_NUMBERS: dict[str, Callable[[Any], Any]] = {
    "alpha": lambda x: tilewright.grouped_matmul(LIST, LIST, alpha=x),
    "beta": lambda x: tilewright.grouped_matmul(LIST, LIST, beta=x, out=[ONES.copy(), ONES + 1]),
    "into": lambda x: tilewright.grouped_matmul(LIST, LIST, into=x),
    "transpose_a": lambda x: tilewright.grouped_matmul(LIST, LIST, transpose_a=x),
    "alpha of tensors": lambda x: tilewright.grouped_matmul(TENSORS, TENSORS, alpha=x),
    "m": lambda x: tilewright.plan_grouped(x, [1, 2], [1, 2]),
    "m of shares": lambda x: tilewright.split(x, [1, 2], [1, 2], 2),
    "dtype": lambda x: tilewright.plan_grouped([1], [1], [1], dtype=x),
    "dtype of an array": lambda x: tilewright.empty((1,), dtype=x),
    "dtype of unpacked bits": lambda x: onebit.unpack(BITS, dtype=x),
    "dtype of bits": lambda x: onebit.matmul(BITS, BITS, dtype=x),
    "scale": lambda x: onebit.matmul(BITS, BITS, scale=x),
    "threshold": lambda x: onebit.matmul(BITS, BITS, threshold=x),
    "flip": lambda x: onebit.matmul(BITS, BITS, threshold=1, flip=x),
    "zero": lambda x: onebit.pack(ONES, zero=x),
    "a of blocks": lambda x: tilewright.bsr_matmul(x, x),
}
RIGHT = {("alpha", "array"), ("beta", "array"), ("alpha of tensors", "array")}


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("name", OF_NUMBERS)
def test_what_has_no_numbers_for_an_argument_is_refused_by_name(name: str, kind: str) -> None:
    if (name, kind) in RIGHT:
        OF_NUMBERS[name](VALUES[kind])
        return
    with pytest.raises(TilewrightError, match=rf"^{name.split()[0]}\b"):
        OF_NUMBERS[name](VALUES[kind])


def test_blocks_of_numbers_that_have_no_buffer_are_refused_by_name() -> None:
    times = np.ones((2, 2), "datetime64[s]")
    with pytest.raises(TilewrightError, match=r"^a=ndarray: accepted"):
        tilewright.bsr_matmul(times, times)


@pytest.mark.parametrize("sizes", [VALUES["sparse"], VALUES["meta"]], ids=str)
def test_sizes_of_a_network_that_cannot_be_read_are_refused_by_name(sizes: Any) -> None:
    net: nn.Network = tilewright.models.load("superres-s")
    with pytest.raises(TilewrightError, match=r"^shape of"):
        net.bind(sizes)


def test_a_bias_on_a_device_is_refused_by_name() -> None:
    vector = tilewright.asarray(np.ones(3, np.float32))
    if vector.device.backend == "host":
        pytest.skip("no OpenCL device")
    with pytest.raises(TilewrightError, match=r"^bias\[1\]: lies on a device; accepted"):
        tilewright.grouped_matmul(LIST, LIST, bias=[None, vector])


@pytest.mark.parametrize("way", ["reverse", "forward", "transform"])
def test_a_factor_that_is_differentiated_is_refused_as_its_gradient_would_be_lost(way: str) -> None:
    def function(alpha: Any) -> Any:
        return tilewright.grouped_matmul(TENSORS, TENSORS, alpha=alpha)[0].sum()

    two = torch.tensor(2.0)
    calls = {
        "reverse": lambda: function(two.clone().requires_grad_()),
        "forward": lambda: torch.func.jvp(function, (two,), (two,)),
        "transform": lambda: torch.func.grad(function)(two),
    }
    with pytest.raises(TilewrightError, match=r"^alpha: requires a gradient .*accepted"):
        calls[way]()
    assert function(two) == 2 * 27
