"""Two networks that others trained: every hidden bit and every score equals the reference.

BNN-PYNQ's lfcW1A1 (MNIST, dense) and cnvW1A1 (CIFAR-10, convolutional), arrays in
../shared/data/bnn-pynq; its README has the arithmetic. The hidden bits are computed here from that
description, in whole numbers; the scores are those that the files bring along.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tilewright import onebit
from tilewright.nn.window import Window
from tilewright.onebit.layers import BitConv, Flatten, Layer, MaxPool, RealConv, Sign

NDArray = npt.NDArray[Any]
FOLDER = Path(__file__).parents[3] / "shared" / "data" / "bnn-pynq"
PICTURES = ("deer_bin", "deer_jpg", "airplane", "car", "bird")
DIGITS = ("three", "webcam")
CLASSES = {
    "three": 3,
    "webcam": 2,
    "deer_bin": 4,
    "deer_jpg": 4,
    "airplane": 0,
    "car": 1,
    "bird": 2,
}

pytestmark = pytest.mark.skipif(
    not FOLDER.is_dir(), reason=f"the trained networks are not here: {FOLDER} is absent"
)


def arrays(name: str) -> dict[str, NDArray]:
    with np.load(FOLDER / name, allow_pickle=False) as file:
        return dict(file)


def above(thresholds: NDArray) -> NDArray:
    """The reference's S > t as our S >= threshold."""
    return (thresholds + 1).astype(np.int32)


def dense(name: str, source: str, weights: NDArray, thresholds: NDArray | None) -> BitConv:
    return BitConv(
        name=name,
        inputs=(source,),
        weights=onebit.pack(weights[:, None, None, :].astype(bool)),
        threshold=None if thresholds is None else above(thresholds),
    )


def mnist(file: dict[str, NDArray]) -> onebit.Network:
    bright = np.full(784, file["in_threshold"], np.float32)
    layers: list[Layer] = [Sign(name="bits", inputs=("input",), cut=bright)]
    for i in range(4):
        last = i == 3
        layers.append(
            dense(f"{i}", layers[-1].name, file[f"w{i}"], None if last else file[f"t{i}"])
        )
    labels = tuple(str(name) for name in file["classes"])
    return onebit.Network((784,), tuple(layers), labels=labels)


def cifar(file: dict[str, NDArray]) -> onebit.Network:
    """Layer 0 sums eight-bit numbers: +-1 weights are exact in half precision, sums in float32."""
    window = Window((3, 3))
    weights = (2.0 * file["w0"] - 1).astype(np.float16)
    cut = np.nextafter(file["t0"].astype(np.float32), np.float32(np.inf))
    layers: list[Layer] = [
        RealConv(name="sums", inputs=("input",), weights=weights, window=window),
        Sign(name="0", inputs=("sums",), cut=cut),
    ]
    for i in range(1, 6):
        bits = onebit.pack(file[f"w{i}"].astype(bool))
        threshold = above(file[f"t{i}"])
        before = layers[-1].name
        layers.append(
            BitConv(name=f"{i}", inputs=(before,), weights=bits, window=window, threshold=threshold)
        )
        if i in file["pool_after"]:
            half = Window((2, 2), (2, 2))
            layers.append(MaxPool(name=f"{i} pooled", inputs=(f"{i}",), window=half))
    layers.append(Flatten(name="flat", inputs=(layers[-1].name,)))
    for i in range(6, 9):
        thresholds = None if i == 8 else file[f"t{i}"]
        layers.append(dense(f"{i}", layers[-1].name, file[f"w{i}"], thresholds))
    return onebit.Network((32, 32, 3), tuple(layers))


def sums(signs: NDArray, weights: NDArray) -> NDArray:
    """S of the README for one image: [H, W, C] with bits [out, 3, 3, C], or [n] with [out, n]."""
    pm = 2 * weights.astype(np.int64) - 1
    if weights.ndim == 2:
        result: NDArray = pm @ signs
        return result
    views = np.lib.stride_tricks.sliding_window_view(signs, (3, 3), axis=(0, 1))
    return np.einsum("yxcij,oijc->yxo", views, pm)


def mnist_values(file: dict[str, NDArray], x: NDArray) -> dict[str, NDArray]:
    """Every value of the network, by the README's words."""
    signs = np.where(x.reshape(-1) >= file["in_threshold"], 1, -1)
    found = {"bits": signs}
    for i in range(3):
        signs = np.where(sums(signs, file[f"w{i}"]) > file[f"t{i}"], 1, -1)
        found[f"{i}"] = signs
    return found | {"3": sums(signs, file["w3"])}


def cifar_values(file: dict[str, NDArray], x: NDArray) -> dict[str, NDArray]:
    signs: NDArray = file["in_lut"][x].astype(np.int64)
    found = {}
    for i in range(6):
        signs = np.where(sums(signs, file[f"w{i}"]) > file[f"t{i}"], 1, -1)
        found[f"{i}"] = signs
        if i in file["pool_after"]:
            height, width, channels = signs.shape
            signs = signs.reshape(height // 2, 2, width // 2, 2, channels).max(axis=(1, 3))
            found[f"{i} pooled"] = signs
    signs = signs.reshape(-1)
    for i in (6, 7):
        signs = np.where(sums(signs, file[f"w{i}"]) > file[f"t{i}"], 1, -1)
        found[f"{i}"] = signs
    return found | {"8": sums(signs, file["w8"])}


def check(network: onebit.Network, x: NDArray, truth: dict[str, NDArray], scores: NDArray) -> None:
    traced = network.trace(x)
    for name, value in truth.items():
        assert np.array_equal(traced[name].reshape(value.shape), value), name
    assert np.array_equal(network.run(x), scores)


@pytest.mark.parametrize("name", DIGITS)
def test_every_bit_and_score_of_the_mnist_network_is_the_reference(name: str) -> None:
    file = arrays("mnist-lfcW1A1.npz")
    x = file[f"x_{name}"]
    network = mnist(file)
    check(network, x.reshape(784), mnist_values(file, x), file[f"s_{name}"])
    assert network.run(x.reshape(784)).argmax() == file[f"y_{name}"] == CLASSES[name]


@pytest.mark.parametrize("name", PICTURES)
def test_every_bit_and_score_of_the_cifar_network_is_the_reference(name: str) -> None:
    file = arrays("cifar10-cnvW1A1.npz")
    x = file[f"x_{name}"]
    network = cifar(file)
    check(network, file["in_lut"][x], cifar_values(file, x), file[f"s_{name}"])
    assert network.run(file["in_lut"][x]).argmax() == file[f"y_{name}"] == CLASSES[name]


def test_a_batch_gives_what_its_images_give_alone() -> None:
    file = arrays("cifar10-cnvW1A1.npz")
    batch = np.stack([file["in_lut"][file[f"x_{name}"]] for name in PICTURES])
    scores = np.stack([file[f"s_{name}"] for name in PICTURES])
    assert np.array_equal(cifar(file).run(batch), scores)


def test_they_survive_their_file(tmp_path: Path) -> None:
    file = arrays("mnist-lfcW1A1.npz")
    network = mnist(file)
    onebit.save(network, tmp_path / "mnist.npz")
    again = onebit.load(tmp_path / "mnist.npz")
    x = np.stack([file[f"x_{name}"].reshape(784) for name in DIGITS])
    assert np.array_equal(again.run(x), network.run(x))
    assert again.labels == network.labels
