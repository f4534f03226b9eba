"""Options that are names refuse every other type, by one line, for arrays of every kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright.errors import TilewrightError

torch: Any = pytest.importorskip("torch")

WRONG: tuple[Any, ...] = (
    0.0,
    0,
    1,
    False,
    True,
    b"host",
    [],
    (),
    {},
    object,
    np.zeros(2),
    torch.zeros(2),
    "none",
)
NAMES = {
    "matmul": ("kernel", "precision", "accumulate", "device", "activation"),
    "explain": ("kernel", "precision", "accumulate", "device", "activation"),
    "grouped_matmul": ("kernel", "precision", "order", "device", "activation"),
    "bind": ("kernel", "precision", "activation"),
    "ragged_matmul": ("precision",),
}
Array = Callable[[], Any]
ARRAYS: dict[str, Array] = {
    "numpy": lambda: np.ones((3, 3), np.float32),
    "torch": lambda: torch.ones(3, 3),
    "float64": lambda: torch.ones(3, 3, dtype=torch.float64),
    "halves": lambda: torch.ones(3, 3, dtype=torch.float16),
    "bfloat16": lambda: torch.ones(3, 3, dtype=torch.bfloat16),
    "gradient": lambda: torch.ones(3, 3, requires_grad=True),
    "turned": lambda: torch.ones(3, 3).T,
}


def called(function: str, kind: str, **options: Any) -> Any:
    """A call of `function` on arrays of a kind, `out` of which is one matrix or None."""
    make = ARRAYS[kind]
    a, b, out = make(), make(), options.pop("out", None)
    if function in ("matmul", "explain"):
        return getattr(tilewright, function)(a, b, out=out, **options)
    if function == "ragged_matmul":
        if kind == "numpy":
            a, b = torch.ones(3, 3), torch.ones(3, 3)
        return tilewright.ragged_matmul(a, b[None], torch.tensor([3]), out=out, **options)
    outs = None if out is None else [out]
    if function == "bind":
        dtype = "float32" if kind in ("numpy", "torch", "turned", "gradient") else "float16"
        with torch.no_grad():
            return tilewright.plan_grouped([3], [3], [3], dtype=dtype).bind(
                [a], [b], outs, **options
            )
    return tilewright.grouped_matmul([a], [b], out=outs, **options)


def wrong_of(option: str) -> list[Any]:
    """Values that an option is to refuse: "none" is an activation."""
    return [one for one in WRONG if option != "activation" or not isinstance(one, str)]


@pytest.mark.parametrize("kind", ARRAYS)
@pytest.mark.parametrize("function", NAMES)
def test_an_option_of_a_wrong_type_is_one_error_that_names_it(function: str, kind: str) -> None:
    if function == "bind" and kind in ("float64", "bfloat16"):
        pytest.skip("the plan here is for other types")
    accepted = []
    for option in NAMES[function]:
        for wrong in wrong_of(option):
            try:
                called(function, kind, **{option: wrong})
            except TilewrightError as error:
                message = str(error)
                # NumPy has no bfloat16, which is said before the option that leads there.
                named = message.startswith((f"{option}=", "a.dtype='bfloat16': NumPy has none"))
                if not named or "\n" in message:
                    accepted.append((option, wrong, message))
            else:
                accepted.append((option, wrong, "accepted"))
    assert not accepted


@pytest.mark.parametrize("function", ["matmul", "grouped_matmul"])
def test_autocast_leaves_a_precision_but_refuses_what_is_none(function: str) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        called(function, "torch", precision="tf32")  # float32's, which autocast has left
        for wrong in wrong_of("precision"):
            with pytest.raises(TilewrightError, match=r"^precision="):
                called(function, "torch", precision=wrong)


@pytest.mark.parametrize("option", ["kernel", "device"])
def test_nothing_is_written_before_a_wrong_option_is_refused(option: str) -> None:
    for kind, full in (("numpy", np.full), ("torch", torch.full)):
        for function in ("matmul", "grouped_matmul"):
            out = full((3, 3), 7.0, dtype=np.float32 if kind == "numpy" else torch.float32)
            with pytest.raises(TilewrightError, match=f"^{option}="):
                called(function, kind, out=out, **{option: 0.0})
            assert (out == 7).all()


@pytest.mark.parametrize("option", ["kernel", "device"])
def test_a_compiled_function_refuses_a_wrong_option_too(option: str) -> None:
    def product(a: Any, b: Any) -> Any:
        return tilewright.grouped_matmul([a], [b], **{option: 0.0})

    compiled = torch.compile(product, backend="eager")
    with pytest.raises(TilewrightError, match=f"^{option}="):
        compiled(torch.ones(3, 3), torch.ones(3, 3))


def test_a_device_that_there_is_not_is_refused_in_lists_of_tensors() -> None:
    for requires in (False, True):
        one = torch.ones(3, 3, requires_grad=requires)
        with pytest.raises(tilewright.errors.DeviceError, match=r"^device='opencl:77'"):
            tilewright.grouped_matmul([one], [one], device="opencl:77")
        assert (tilewright.grouped_matmul([one], [one], device="host")[0] == 3).all()
