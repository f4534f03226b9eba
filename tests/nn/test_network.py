"""Networks of bits and reals: the compiled passes equal plain NumPy layer by layer, bit for bit."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.support.onebit_networks import (
    NETWORKS,
    bits,
    halves,
    image,
    shortcuts,
    thresholds,
    vector,
)
from tilewright import onebit
from tilewright.backends.host import compiled
from tilewright.errors import ArgumentError, DtypeError, OperandError, ShapeError
from tilewright.nn import binding_host, buffers
from tilewright.nn.conv2d import READY
from tilewright.nn.homes import HostHome
from tilewright.nn.joined import plan_passes
from tilewright.nn.layers import found
from tilewright.nn.layers.base import evaluate
from tilewright.nn.layers.maps import bind_map
from tilewright.nn.network_of_bits import READY as BOUND
from tilewright.nn.value import Value
from tilewright.nn.window import Window
from tilewright.onebit.layers import Add, Affine, BitConv, Clamp, Layer, MaxPool, RealConv, Sign
from tilewright.remember import forget

NDArray = npt.NDArray[Any]
needs_numba = pytest.mark.skipif(not compiled.available(), reason="Numba is not installed")


def in_numpy(network: onebit.Network, x: NDArray) -> dict[str, NDArray]:
    value = network.values["input"]
    given = x.reshape(len(x), value.height, value.width, value.channels)
    return evaluate(network.layers, {"input": given})


@needs_numba
@pytest.mark.parametrize("images", [1, 3])
@pytest.mark.parametrize("make", NETWORKS)
def test_every_stored_value_equals_numpy(make: Callable[[], onebit.Network], images: int) -> None:
    network = make()
    x = image(network, images)
    truth = in_numpy(network, x)
    traced = network.trace(x)
    assert network.output in traced
    for name, value in traced.items():
        assert np.array_equal(value, truth[name]), name
        assert np.array_equal(np.signbit(value), np.signbit(truth[name])), f"{name}: -0 and 0"
    scores = network.run(x)
    assert scores.dtype == np.float32
    assert np.array_equal(scores.reshape(truth[network.output].shape), truth[network.output])


@pytest.mark.parametrize("make", NETWORKS)
def test_without_numba_numpy_does_it(
    make: Callable[[], onebit.Network], monkeypatch: pytest.MonkeyPatch
) -> None:
    network = make()
    x = image(network, 2)
    with_numba = network.run(x)
    monkeypatch.setattr(compiled, "available", lambda: False)
    without = make_again(network)
    assert {step.engine for step in without._ready(2)[0].steps} == {"definition"}
    assert np.array_equal(without.run(x), with_numba)
    assert [row.covers for row in without.profile(x, 1)] == [
        row.covers for row in network.profile(x, 1)
    ]


def poison(monkeypatch: pytest.MonkeyPatch, garbage: float) -> None:
    """Memory that is not cleared holds this."""
    plain, home = buffers.aligned, HostHome.__init__

    def poisoned(count: int, dtype: Any, *, clear: bool = False) -> NDArray:
        made = plain(count, dtype, clear=clear)
        if not clear:
            made[...] = garbage
        return made

    def poisoned_home(self: HostHome, size: int) -> None:
        home(self, size)
        self._room[: size // 4 * 4].view(np.float32)[...] = garbage

    monkeypatch.setattr(binding_host, "aligned", poisoned)
    monkeypatch.setattr(buffers, "aligned", poisoned)
    monkeypatch.setattr(HostHome, "__init__", poisoned_home)


def make_again(network: onebit.Network) -> onebit.Network:
    return onebit.Network(network.input_shape, network.layers, network.output, network.labels)


@needs_numba
@pytest.mark.parametrize("make", NETWORKS)
def test_results_do_not_depend_on_what_memory_held(
    make: Callable[[], onebit.Network], monkeypatch: pytest.MonkeyPatch
) -> None:
    network = make()
    x = image(network, 2)
    truth = network.run(x)
    poison(monkeypatch, np.nan)
    again = make_again(network)
    for _ in range(2):
        assert np.array_equal(again.run(x), truth)


@pytest.mark.parametrize("make", NETWORKS)
def test_an_image_alone_gives_what_it_gives_in_a_batch(make: Callable[[], onebit.Network]) -> None:
    network = make()
    x = image(network, 3)
    together = network.run(x)
    for index, one in enumerate(x):
        assert np.array_equal(network.run(one), together[index])


def test_no_images_give_no_scores() -> None:
    network = shortcuts()
    assert network.run(image(network, 0)).shape == (0, 10)


def test_two_threads_may_run_one_network() -> None:
    network = shortcuts()
    batches = [image(network, 1, seed) for seed in range(8)]
    alone = [network.run(x) for x in batches]
    with ThreadPoolExecutor(2) as pool:
        for expected, got in zip(alone, pool.map(network.run, batches), strict=True):
            assert np.array_equal(got, expected)


@needs_numba
def test_times_cover_every_layer() -> None:
    network = shortcuts()
    rows = network.profile(image(network, 1), repeats=2)
    covered = {name for row in rows for name in row.covers}
    assert covered == {layer.name for layer in network.layers}
    assert all(row.seconds for row in rows)


def test_shortcut_and_sign_are_one_pass_with_the_convolution() -> None:
    network = shortcuts()
    passes = plan_passes(network.layers, network.values, {network.output})
    assert [item.covers for item in passes] == [
        ("stem", "s0"),
        ("c0", "a0", "s1"),
        ("half",),
        ("wide",),
        ("c1", "a1"),
        ("mean",),
        ("dense",),
    ]
    assert passes[1].ending.residual == "stem"
    assert passes[1].ending.real == "a0"
    assert passes[4].ending.residual == "wide"


def test_a_float_that_only_its_sign_reads_is_not_stored() -> None:
    layers = (
        Sign(name="s", inputs=("input",)),
        BitConv(name="c", inputs=("s",), weights=bits(4, 1, 1, 8), scale=np.ones(4, np.float32)),
        Sign(name="t", inputs=("c",)),
    )
    network = onebit.Network((8,), layers)
    last = plan_passes(layers, network.values, {"t"})[-1]
    assert (last.covers, last.ending.real) == (("c", "t"), None)
    wanted = plan_passes(layers, network.values, {"c"})[-1]
    assert wanted.ending.real == "c"


def test_the_output_may_be_read_by_others() -> None:
    network = vector()
    assert np.array_equal(
        network.run(image(network, 2)), in_numpy(network, image(network, 2))["d1"][:, 0, 0]
    )


def test_bits_as_output_are_minus_and_plus_one() -> None:
    network = onebit.Network((4,), (Sign(name="s", inputs=("input",)),))
    got = network.run(np.array([0.0, -0.0, -1.0, 2.0], np.float32))
    assert got.tolist() == [1.0, 1.0, -1.0, 1.0]


def test_other_number_types_are_converted() -> None:
    network = thresholds()
    x = image(network, 1)
    for dtype in (np.int8, np.float16, np.float64):
        assert np.array_equal(network.run(x.astype(dtype)), network.run(x))
    assert np.array_equal(network.run(np.asfortranarray(x)), network.run(x))


def sign() -> Sign:
    return Sign(name="s", inputs=("input",))


def conv(**fields: Any) -> BitConv:
    given = {"name": "c", "inputs": ("s",), "weights": bits(4, 3, 3, 8), "window": Window((3, 3))}
    return BitConv(**(given | fields))


ONES = np.ones(4, np.float32)
HALF = halves(4, 1, 1, 8)
WRONG: tuple[tuple[str, Callable[[], object], type[Exception], str], ...] = (
    ("empty", lambda: onebit.Network((8,), ()), ArgumentError, "layers"),
    ("shape", lambda: onebit.Network((8, 8), (sign(),)), ShapeError, "input_shape"),
    ("size 0", lambda: onebit.Network((0,), (sign(),)), ShapeError, "input_shape"),
    ("unknown", lambda: onebit.Network((8,), (conv(),)), ArgumentError, "'c': input 's'"),
    (
        "twice",
        lambda: onebit.Network((8,), (sign(), sign())),
        ArgumentError,
        "'s': the name is taken",
    ),
    ("output", lambda: onebit.Network((8,), (sign(),), "x"), ArgumentError, "output='x'"),
    ("labels", lambda: onebit.Network((8,), (sign(),), labels=("a",)), ShapeError, "1 names for 8"),
    ("small", lambda: onebit.Network((2, 9, 8), (sign(), conv())), ShapeError, "'c': image 2"),
    ("channels", lambda: onebit.Network((5, 5, 9), (sign(), conv())), ShapeError, "'c'.*has 9"),
    (
        "real to bits",
        lambda: onebit.Network((5, 5, 8), (conv(inputs=("input",)),)),
        OperandError,
        "'c': takes bits; put a Sign before it",
    ),
    ("kernel", lambda: conv(window=Window((2, 2))), ShapeError, "'c': weights.shape"),
    ("padding", lambda: conv(padding="same"), ArgumentError, "'c': padding='same'"),
    ("weights", lambda: conv(weights=ONES), OperandError, "'c': weights"),
    ("scale", lambda: conv(scale=ONES[:3]), ShapeError, "'c': scale.shape"),
    ("float64", lambda: conv(scale=np.ones(4)), DtypeError, "'c': scale"),
    ("infinite", lambda: conv(shift=np.inf * ONES), ArgumentError, "'c': shift"),
    ("threshold", lambda: conv(threshold=ONES), ShapeError, "'c': threshold"),
    (
        "both",
        lambda: conv(threshold=np.zeros(4, np.int32), scale=ONES),
        ArgumentError,
        "threshold excludes",
    ),
    ("names", lambda: Add(name="a", inputs=("s",)), ArgumentError, "'a': inputs"),
    ("no name", lambda: Sign(name="", inputs=("s",)), ArgumentError, "name=''"),
    ("nan cut", lambda: Sign(name="s", inputs=("x",), cut=np.nan * ONES), ArgumentError, "cut"),
    ("clamp", lambda: Clamp(name="k", inputs=("x",), low=1.0, high=0.0), ArgumentError, "low=1.0"),
    (
        "float32 weights",
        lambda: RealConv(name="r", inputs=("x",), weights=HALF.astype(np.float32)),
        DtypeError,
        "'r': weights",
    ),
    (
        "unequal sum",
        lambda: onebit.Network(
            (8,),
            (
                RealConv(name="r", inputs=("input",), weights=HALF),
                Add(name="a", inputs=("r", "input")),
            ),
        ),
        ShapeError,
        "'a': adds",
    ),
    (
        "vector",
        lambda: onebit.Network(
            (8,), (Affine(name="f", inputs=("input",), scale=ONES, shift=ONES),)
        ),
        ShapeError,
        "'f': scale has 4",
    ),
    (
        "empty window",
        lambda: onebit.Network(
            (4, 4, 1), (MaxPool(name="m", inputs=("input",), window=Window(pads=(1, 1, 1, 1))),)
        ),
        ShapeError,
        "'m': pads",
    ),
    (
        "huge borders",
        lambda: onebit.Network(
            (4, 4, 64),
            (
                RealConv(
                    name="b",
                    inputs=("input",),
                    weights=halves(1, 3, 3, 64),
                    window=Window((3, 3), (4000, 4000), pads=(8000, 8000, 8000, 8000)),
                ),
            ),
        ),
        ShapeError,
        r"'b': pads=\(8000, 8000, 8000, 8000\) make",
    ),
    ("list", lambda: shortcuts().run([1.0]), OperandError, "x="),
    ("size", lambda: shortcuts().run(np.zeros((4, 4, 3))), ShapeError, r"x.shape=\(4, 4, 3\)"),
    ("text", lambda: vector().run(np.full(100, "a")), DtypeError, "x.dtype"),
    ("nan", lambda: vector().run(np.full(100, np.nan)), ArgumentError, "NaN"),
    ("overflow", lambda: vector().run(np.full(100, 1e300)), ArgumentError, "infinities"),
    ("repeats", lambda: vector().profile(np.zeros(100), 0), ArgumentError, "repeats=0"),
)


@pytest.mark.parametrize(
    ("call", "error", "said"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG]
)
def test_what_does_not_fit_names_the_layer(
    call: Callable[[], object], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        call()


@needs_numba
@pytest.mark.parametrize("garbage", [np.inf, -np.inf, np.nan, 3e38])
@pytest.mark.parametrize("channels", [1, 18, 70])
def test_what_memory_held_before_changes_no_bit(
    garbage: float, channels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Buffers are wider than images; bits past the channels would be counted in the next layer."""
    poison(monkeypatch, garbage)
    generator = np.random.default_rng(0)
    signs = [onebit.pack(generator.choice([-1, 1], (channels, 3, 3, channels))) for _ in range(2)]
    around = Window((3, 3), pads=(1, 1, 1, 1))
    made: tuple[Layer, ...] = (
        Sign(name="s", inputs=("input",)),
        BitConv(name="c", inputs=("s",), weights=signs[0], window=around),
        Add(name="a", inputs=("c", "input")),
        MaxPool(name="m", inputs=("a",), window=Window((2, 2))),
        Sign(name="t", inputs=("m",)),
        BitConv(name="d", inputs=("t",), weights=signs[1], window=around),
    )
    network = onebit.Network((6, 5, channels), made)
    x = generator.standard_normal((2, 6, 5, channels)).astype(np.float32)
    assert np.array_equal(network.run(x), evaluate(made, {"input": x})["d"])


@needs_numba
def test_what_a_network_is_made_ready_with_is_counted_forgotten_and_goes_with_it() -> None:
    network = shortcuts()
    x = image(network, 2)
    truth = network.run(x)
    kept = BOUND.get((id(network), 2))
    assert kept is not None
    made = kept[0]
    assert made.peak_bytes <= made.held_bytes <= 64 * made.peak_bytes
    forget()
    assert not len(BOUND)
    assert np.array_equal(network.run(x), truth)
    conv = onebit.Conv2d(np.ones((4, 3, 3, 3), np.int8))
    conv(onebit.pack(np.ones((1, 5, 5, 3), np.int8)))
    assert (len(BOUND), len(READY)) == (1, 1)
    del network, conv, made, kept
    gc.collect()
    assert (len(BOUND), len(READY)) == (0, 0)


@dataclass(frozen=True, eq=False, kw_only=True)
class Negate(Layer):
    """What somebody adds: a class, and nothing else changes."""

    def output(self, inputs: Sequence[Value]) -> Value:
        return replace(inputs[0], kind="real")

    def compute(self, *inputs: NDArray) -> NDArray:
        return -inputs[0].astype(np.float32)

    def bind(self, host: binding_host.Binding, ending: binding_host.Ending) -> None:
        channels = host.values[self.name].channels
        bind_map(self, host, ending, scale=np.full(channels, -1, np.float32))


@needs_numba
def test_an_operator_is_one_class_that_nothing_else_names(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tilewright.nn.files.found", lambda: {**found(), "Negate": Negate})
    layers = (
        Negate(name="n", inputs=("input",)),
        Add(name="a", inputs=("n", "input")),
        Negate(name="m", inputs=("a",)),
        Sign(name="s", inputs=("m",), cut=np.array([0, 1, -1], np.float32)),
    )
    onebit.save(onebit.Network((4, 5, 3), layers), tmp_path / "network.npz")
    network = onebit.load(tmp_path / "network.npz")
    x = np.random.default_rng(0).standard_normal((2, 4, 5, 3)).astype(np.float32)
    assert np.array_equal(network.run(x), evaluate(layers, {"input": x})["s"])
    covered = [row.covers for row in network.profile(x, 1)]
    assert list(dict.fromkeys(covered)) == [("n", "a"), ("m", "s")]
