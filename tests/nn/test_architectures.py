"""Whole nets, exported by torch, give what onnxruntime gives: on NumPy and on torch's tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
ort = pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")
pytest.importorskip("array_api_compat")

from tests.support.architectures import ARCHITECTURES, exported  # noqa: E402
from tilewright import nn  # noqa: E402
from tilewright.arrays.array import NDArray  # noqa: E402
from tilewright.nn.infer import tensors  # noqa: E402


def content_of(name: str) -> bytes:
    try:
        return exported(name)
    except ModuleNotFoundError as error:
        pytest.skip(f"{error.name} is not installed")


def drawn(name: str) -> list[NDArray]:
    rng = np.random.default_rng(1)
    return [rng.standard_normal(s).astype(np.float32) for s in ARCHITECTURES[name].shapes]


def close(made: Any, wanted: list[NDArray]) -> None:
    """To 1e-4 of the largest value."""
    arrays = made if isinstance(made, tuple) else (made,)
    for array, right in zip(arrays, wanted, strict=True):
        assert array.shape == right.shape
        np.testing.assert_allclose(array, right, rtol=0, atol=1e-4 * float(np.abs(right).max()))


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_an_architecture_gives_what_onnxruntime_gives(name: str) -> None:
    content, inputs = content_of(name), drawn(name)
    session = ort.InferenceSession(content, providers=["CPUExecutionProvider"])
    wanted = session.run(None, {f"x{at}": array for at, array in enumerate(inputs)})
    net = nn.import_onnx(content)
    made = net.run(*inputs)
    close(made, wanted)
    known = tensors(net.graph, {f"x{at}": array.shape for at, array in enumerate(inputs)})
    assert [known[output].shape for output in net.outputs] == [array.shape for array in wanted]
    on_torch = net.run(*(torch.from_numpy(array) for array in inputs))
    arrays = on_torch if isinstance(on_torch, tuple) else (on_torch,)
    close(tuple(array.numpy() for array in arrays), wanted)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_an_architecture_bound_to_the_host_gives_it_too(name: str) -> None:
    content, inputs = content_of(name), drawn(name)
    session = ort.InferenceSession(content, providers=["CPUExecutionProvider"])
    given = {f"x{at}": array for at, array in enumerate(inputs)}
    bound = nn.import_onnx(content).bind({n: a.shape for n, a in given.items()}, "host")
    close(bound(*inputs), session.run(None, given))


def test_states_go_round_as_onnxruntime_sends_them() -> None:
    content, (x, *states) = content_of("recurrent matting"), drawn("recurrent matting")
    session = ort.InferenceSession(content, providers=["CPUExecutionProvider"])
    net = nn.import_onnx(content)
    theirs = ours = states
    for frame in range(3):
        picture = np.roll(x, frame, axis=3)
        given = {"x0": picture, "x1": theirs[0], "x2": theirs[1]}
        wanted = session.run(None, given)
        made = net.run(picture, *ours)
        close(made, wanted)
        theirs, ours = wanted[2:], list(made[2:])
