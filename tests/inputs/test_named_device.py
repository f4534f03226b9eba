"""TILEWRIGHT_DEVICE that names no device is one error in every call that would follow it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright import onebit
from tilewright.errors import DeviceError

torch: Any = pytest.importorskip("torch")

LIKE_NUMPY = np.ones((3, 4), np.float32), np.ones((4, 5), np.float32)
LIKE_TORCH = torch.ones(3, 4), torch.ones(4, 5)
BITS = onebit.pack(LIKE_NUMPY[0]), onebit.pack(LIKE_NUMPY[1], axis=0)


def lists(count: int, kind: tuple[Any, Any], **options: Any) -> Callable[[], Any]:
    a, b = kind
    return lambda: tilewright.grouped_matmul([a] * count, [b] * count, **options)


CALLS = {
    "matmul": lambda: tilewright.matmul(*LIKE_NUMPY),
    "matmul of halves": lambda: tilewright.matmul(*(x.astype(np.float16) for x in LIKE_NUMPY)),
    "matmul of tensors": lambda: tilewright.matmul(*LIKE_TORCH),
    "matmul of tensors, halves": lambda: tilewright.matmul(*(x.bfloat16() for x in LIKE_TORCH)),
    "explain": lambda: tilewright.explain(*LIKE_NUMPY),
    "explain of tensors": lambda: tilewright.explain(*(x.half() for x in LIKE_TORCH)),
    "one in a list": lists(1, LIKE_NUMPY),
    "many": lists(3000, LIKE_NUMPY),
    "a list with an activation": lists(2, LIKE_NUMPY, activation="relu"),
    "one tensor in a list": lists(1, LIKE_TORCH),
    "many tensors": lists(100, LIKE_TORCH),
    "tensors with an activation": lists(2, LIKE_TORCH, activation="relu"),
    "plan_grouped": lambda: tilewright.plan_grouped([3], [4], [5]),
    "kernels": tilewright.kernels,
    "onebit.matmul": lambda: onebit.matmul(*BITS),
    "onebit.grouped_matmul": lambda: onebit.grouped_matmul([BITS[0]], [BITS[1]]),
    "onebit.explain": lambda: onebit.explain(*BITS),
    "onebit.kernels": onebit.kernels,
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("named", ["nonsense", "opencl:99", "host:1"])
def test_a_name_of_no_device_is_an_error_of_every_call(
    call: str, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_DEVICE", named)
    with pytest.raises(DeviceError, match=rf"^TILEWRIGHT_DEVICE='{named}': no such device; accept"):
        CALLS[call]()


ONES, RIGHT = np.ones((5, 5), np.float32), np.full((3, 5), 4.0)
COUNTS = {"one in a list": 1, "many": 3000, "a list with an activation": 2}
COUNTS |= {"one tensor in a list": 1, "many tensors": 100, "tensors with an activation": 2}
COUNTS |= {"onebit.grouped_matmul": 1}
DTYPES = {"matmul of halves": "float16", "matmul of tensors, halves": "bfloat16"}
DTYPES |= dict.fromkeys(("onebit.matmul", "onebit.grouped_matmul"), "int32")
SAYS = {"explain": "engine     host", "explain of tensors": "engine     torch"}
SAYS |= {"onebit.explain": "engine     numpy"}


@pytest.mark.parametrize("call", CALLS)
def test_a_name_of_a_device_is_followed_by_every_call(
    call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Products lie in the host's memory and are right; what only tells is of the host."""
    monkeypatch.setenv("TILEWRIGHT_DEVICE", "host")
    found = CALLS[call]()
    if call in SAYS:
        assert re.search(r"^device +host  ", found, re.M), found
        assert SAYS[call] in found
    elif call == "plan_grouped":
        assert found.device.id == "host"
        assert np.array_equal(found.bind([ONES[:3]], [ONES[:, :4]])()[0], np.full((3, 4), 5.0))
    elif call.endswith("kernels"):
        names = tilewright.kernels if call == "kernels" else onebit.kernels
        assert found == names("host")
        others = [one for one in tilewright.devices() if one.backend != "host"]
        assert found not in [names(other) for other in others]
    else:
        many = isinstance(found, list)
        assert not many or len(found) == COUNTS[call]
        for one in found if many else [found]:
            assert isinstance(one, torch.Tensor if "tensor" in call else np.ndarray)
            assert str(one.dtype).removeprefix("torch.") == DTYPES.get(call, "float32")
            assert str(one.device) == "cpu"
            assert np.array_equal(one.tolist(), RIGHT)


def test_a_device_that_the_call_names_stands_for_the_one_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TILEWRIGHT_DEVICE", "nonsense")
    found = tilewright.grouped_matmul([LIKE_NUMPY[0]], [LIKE_NUMPY[1]], device="host")
    assert np.array_equal(found[0], LIKE_NUMPY[0] @ LIKE_NUMPY[1])
    assert np.array_equal(onebit.matmul(*BITS, device="host"), np.full((3, 5), 4))
    assert torch.equal(tilewright.matmul(*LIKE_TORCH, device="host"), LIKE_TORCH[0] @ LIKE_TORCH[1])


def test_a_long_name_is_cut_in_the_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_DEVICE", "x" * 10_000)
    with pytest.raises(DeviceError) as caught:
        tilewright.matmul(*LIKE_NUMPY)
    assert len(str(caught.value)) < 1000
