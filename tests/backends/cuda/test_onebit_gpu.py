"""One-bit products on NVIDIA GPUs: every kernel equal to integers, bit for bit, at every edge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tilewright import onebit
from tilewright.backends.cuda.bits import launch as bits_launch
from tilewright.backends.cuda.bits.place import PLACE
from tilewright.backends.cuda.machine import driver, nvrtc
from tilewright.engines.bits import BitProblem, BitWork
from tilewright.errors import ArgumentError, DtypeError, KernelError, OperandError

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(driver.missing() is not None, reason=f"no GPU: {driver.missing()}"),
    pytest.mark.skipif(nvrtc.missing() is not None, reason=str(nvrtc.missing())),
]

KERNELS = ("wgmma", "mma", "popcount")
OUTPUTS = ("int32", "float32", "float16", "bits")
# m, n, k: tiles and one element to either side of them, primes, vectors, long and short rows.
SIZES = (
    *((1, 1, 1), (3, 5, 70), (64, 128, 1024), (63, 127, 1023), (65, 129, 1025), (128, 256, 2048)),
    *((129, 257, 64), (300, 700, 5000), (1, 1000, 777), (1000, 1, 777), (17, 4096, 63)),
    *((4099, 31, 129), (2000, 1028, 333), (257, 263, 20011), (512, 520, 1)),
)
Ints = npt.NDArray[np.int64]


@pytest.fixture(autouse=True)
def _poison(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a kernel leaves out shows."""
    empty = PLACE.empty

    def poisoned(shape: tuple[int, ...], dtype: str, like: Any) -> Any:
        made = empty(shape, dtype, like)
        return made.fill_(float("nan") if dtype.startswith("float") else -77)

    monkeypatch.setattr(PLACE, "empty", poisoned)


def supported(kernel: str) -> None:
    device = driver.found()[0]
    engine = next(engine for engine in PLACE.engines(device) if engine.name == kernel)
    why = engine.why_not([BitProblem(1, 1, 1)], device)
    if why is not None:
        pytest.skip(f"{kernel}: {why}")


def signs(rng: np.random.Generator, *shape: int) -> npt.NDArray[np.int8]:
    return (rng.integers(0, 2, shape) * 2 - 1).astype(np.int8)


def on_gpu(array: npt.NDArray[Any]) -> Any:
    import torch

    return torch.from_numpy(np.ascontiguousarray(array)).cuda()


def dots(x: npt.NDArray[np.int8], y: npt.NDArray[np.int8], form: str) -> Ints:
    if form == "and":
        x, y = x > 0, y > 0
    return np.rint(x.astype(np.float64) @ y.astype(np.float64).T).astype(np.int64)


def options(rng: np.random.Generator, out: str, n: int, middle: float) -> dict[str, Any]:
    if out == "int32":
        return {}
    if out == "bits":
        thresholds = rng.integers(-9, 9, n) + int(middle)
        return {"threshold": thresholds, "flip": rng.integers(0, 2, n).astype(bool)}
    real = {name: rng.normal(size=n).astype(np.float32) for name in ("scale", "shift")}
    return {**real, "dtype": out}


def expected(dot: Ints, out: str, given: dict[str, Any]) -> npt.NDArray[Any]:
    if out == "int32":
        return dot.astype(np.int32)
    if out == "bits":
        return np.where((dot >= given["threshold"]) ^ given["flip"], 1, -1).astype(np.int8)
    return (dot.astype(np.float32) * given["scale"] + given["shift"]).astype(out)


def on_host(result: Any) -> npt.NDArray[Any]:
    if isinstance(result, onebit.BitMatrix):
        return onebit.unpack(result)
    found: npt.NDArray[Any] = result.cpu().numpy()
    return found


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("out", OUTPUTS)
@pytest.mark.parametrize("form", ["xor", "and"])
def test_every_size_gives_the_integers(kernel: str, out: str, form: str) -> None:
    supported(kernel)
    rng = np.random.default_rng(0)
    for m, n, k in SIZES:
        x, y = signs(rng, m, k), signs(rng, n, k)
        dot = dots(x, y, form)
        given = options(rng, out, n, float(np.median(dot)))
        a, b = onebit.pack(on_gpu(x)), onebit.pack(on_gpu(y))
        found = onebit.matmul(a, b, form=form, kernel=kernel, **given)
        np.testing.assert_array_equal(on_host(found), expected(dot, out, given), f"{m}x{n}x{k}")


@pytest.mark.parametrize("kernel", KERNELS)
def test_bits_past_the_last_column_are_zero(kernel: str) -> None:
    supported(kernel)
    rng = np.random.default_rng(1)
    a, b = (onebit.pack(on_gpu(signs(rng, rows, 100))) for rows in (70, 67))
    found = onebit.matmul(a, b, threshold=-101, flip=False, kernel=kernel)
    words = PLACE.to_host(found.words)
    assert np.all(words[:, 0] == np.uint64(2**64 - 1))
    assert np.all(words[:, 1] == np.uint64(7))


@pytest.mark.parametrize("kernel", KERNELS)
def test_thresholds_at_the_ends_of_int32_do_not_overflow(kernel: str) -> None:
    supported(kernel)
    rng = np.random.default_rng(2)
    x, y = signs(rng, 40, 300), signs(rng, 6, 300)
    x[0], y[0] = 1, 1
    thresholds = np.array([300, 301, -(2**31), 2**31 - 1, -300, 0])
    a, b = onebit.pack(on_gpu(x)), onebit.pack(on_gpu(y))
    found = onebit.unpack(onebit.matmul(a, b, threshold=thresholds, kernel=kernel))
    np.testing.assert_array_equal(found, np.where(dots(x, y, "xor") >= thresholds, 1, -1))


@pytest.mark.parametrize("kernel", KERNELS)
def test_more_tiles_than_the_gpu_has_processors(kernel: str) -> None:
    """Against an exact float32 product of the same GPU."""
    import torch

    supported(kernel)
    rng = np.random.default_rng(3)
    x, y = on_gpu(signs(rng, 3000, 4097)), on_gpu(signs(rng, 5000, 4097))
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    dot = (x.float() @ y.float().T).int()
    torch.backends.cuda.matmul.allow_tf32 = before
    a, b = onebit.pack(x), onebit.pack(y)
    assert torch.equal(onebit.matmul(a, b, kernel=kernel), dot)
    found = onebit.matmul(a, b, threshold=5, kernel=kernel)
    assert found == onebit.pack(dot >= 5)


def test_words_at_any_address_and_pitch_are_taken() -> None:
    import torch

    rng = np.random.default_rng(4)
    x, y = signs(rng, 130, 129), signs(rng, 70, 129)
    packed = onebit.pack(on_gpu(x))
    loose = torch.zeros(130 * 3 + 1, dtype=torch.int64, device="cuda")[1:].view(130, 3)
    loose.copy_(packed.words)
    assert loose.data_ptr() % 16 == 8
    a = onebit.BitMatrix(loose, 129)
    np.testing.assert_array_equal(PLACE.counts(loose).cpu(), (x > 0).sum(1))
    for kernel in onebit.kernels(a.device):
        supported(kernel)
        found = onebit.matmul(a, onebit.pack(on_gpu(y)), kernel=kernel)
        np.testing.assert_array_equal(on_host(found), dots(x, y, "xor"))


def test_empty_sides_give_empty_results_and_no_k_gives_zeros() -> None:
    import torch

    def empty(*shape: int) -> onebit.BitMatrix:
        return onebit.pack(torch.ones(shape, device="cuda"))

    assert tuple(onebit.matmul(empty(0, 70), empty(5, 70)).shape) == (0, 5)
    assert tuple(onebit.matmul(empty(4, 70), empty(0, 70)).shape) == (4, 0)
    assert onebit.matmul(empty(3, 0), empty(5, 0)).tolist() == [[0] * 5] * 3
    assert (
        onebit.unpack(onebit.matmul(empty(3, 0), empty(5, 0), threshold=1)).tolist()
        == [[-1] * 5] * 3
    )


def test_groups_of_any_sizes_are_multiplied_in_one_call() -> None:
    rng = np.random.default_rng(12)
    numbers = [(signs(rng, m, k), signs(rng, n, k)) for m, n, k in SIZES[:9]]
    a, b = ([onebit.pack(on_gpu(pair[side])) for pair in numbers] for side in (0, 1))
    for found, (x, y) in zip(onebit.grouped_matmul(a, b), numbers, strict=True):
        np.testing.assert_array_equal(on_host(found), dots(x, y, "xor"))


def test_products_follow_torchs_current_stream() -> None:
    import torch

    rng = np.random.default_rng(13)
    x, y = signs(rng, 500, 3000), signs(rng, 600, 3000)
    slow = torch.ones((6000, 6000), device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(20):
            slow = slow @ slow * 0
        late = on_gpu(x) + slow[:1, :1].to(torch.int8)  # not there before the products above
        found = onebit.matmul(onebit.pack(late, zero=1), onebit.pack(on_gpu(y)))
    stream.synchronize()
    np.testing.assert_array_equal(on_host(found), dots(x, y, "xor"))


def test_out_may_have_any_number_of_dimensions_but_must_be_dense() -> None:
    import torch

    rng = np.random.default_rng(10)
    x, y = signs(rng, 3, 5, 100), signs(rng, 7, 100)
    a, b = onebit.pack(on_gpu(x)), onebit.pack(on_gpu(y))
    dot = dots(x.reshape(15, 100), y, "xor").reshape(3, 5, 7)
    out = torch.full((3, 5, 7), -77, dtype=torch.int32, device="cuda")
    assert onebit.matmul(a, b, out=out) is out
    np.testing.assert_array_equal(on_host(out), dot)
    with pytest.raises(OperandError, match="dense"):
        onebit.matmul(a, b, out=out.transpose(0, 1).contiguous().transpose(0, 1))


def test_vectors_on_the_gpu_give_what_vectors_of_the_host_give() -> None:
    rng = np.random.default_rng(11)
    a, b = (onebit.pack(on_gpu(signs(rng, rows, 500))) for rows in (50, 90))
    for out in ("bits", "float32", "float16"):
        given = options(rng, out, 90, 0)
        given = {k: v.astype(np.int32) if k == "threshold" else v for k, v in given.items()}
        there = {k: v if k == "dtype" else on_gpu(v) for k, v in given.items()}
        found, wanted = (onebit.matmul(a, b, **values) for values in (there, given))
        np.testing.assert_array_equal(on_host(found), on_host(wanted))


def test_a_prepared_launch_can_be_captured_and_replayed() -> None:
    import torch

    supported("wgmma")
    rng = np.random.default_rng(5)
    x, y = (on_gpu(signs(rng, rows, 2000)) for rows in (300, 400))
    a, b = onebit.pack(x), onebit.pack(y)
    out = torch.zeros((300, 400), dtype=torch.int32, device="cuda")
    work = BitWork(BitProblem(300, 400, 2000), a.words, b.words, a.counts, b.counts, out)
    launch = bits_launch.prepare_wgmma(work)
    launch()
    first = out.clone()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch()
    other = onebit.pack(-x)
    a.words.copy_(other.words)
    a.counts.copy_(other.counts)
    graph.replay()
    assert torch.equal(out, -first)


PACKED = ("float32", "float16", "bfloat16", "float64", "int8", "int16", "int32", "int64")
# Rows of whole vectors of 16 bytes and of others, longer and shorter than a warp packs at once.
SHAPES = (
    *(((6, 2064), 1), ((5, 4100), 1), ((2, 3, 208), 2), ((3, 201), 1), ((9,), 0), ((1, 1), 0)),
    # A multiple of 16 bytes from one matrix to the next, but not from one row to the next.
    *(((2, 4, 5), 2), ((3, 16, 1030), 2)),
    *(((70, 33), 0), ((3, 65, 7), 1), ((2, 130, 40), 1), ((200, 300), 0), ((3, 64, 6, 2), 1)),
)


@pytest.mark.parametrize("dtype", PACKED)
def test_packing_equals_the_host(dtype: str) -> None:
    import torch

    rng = np.random.default_rng(6)
    for shape, axis in SHAPES:
        numbers = rng.integers(-3, 4, shape)
        for zero in (1, -1):
            found = onebit.pack(on_gpu(numbers).to(getattr(torch, dtype)), axis, zero=zero)
            wanted = onebit.pack(numbers, axis, zero=zero)
            assert found == wanted
            np.testing.assert_array_equal(found.counts.cpu(), wanted.counts)


def test_packing_takes_transposed_views_and_slices() -> None:
    rng = np.random.default_rng(7)
    numbers = signs(rng, 90, 300)
    views: tuple[Callable[[Any], Any], ...] = (
        lambda x: x.T,
        lambda x: x[10:50, 3:201],
        lambda x: x[::2, ::3],
        lambda x: x[:, 5:].T,
    )
    for view in views:
        for axis in (0, 1):
            assert onebit.pack(view(on_gpu(numbers)), axis) == onebit.pack(view(numbers), axis)


def test_bool_packs_true_as_one_and_false_as_minus_one() -> None:
    flags = np.random.default_rng(8).integers(0, 2, (6, 130)).astype(bool)
    assert onebit.pack(on_gpu(flags)) == onebit.pack(flags)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_nan_and_unruled_zeros_are_refused(dtype: str) -> None:
    import torch

    ones = torch.ones((7, 528), dtype=getattr(torch, dtype), device="cuda")
    for axis in (0, 1):
        wrong = ones.clone()
        wrong[3, 71] = float("nan")
        with pytest.raises(ArgumentError, match="NaN"):
            onebit.pack(wrong, axis, zero=1)
        wrong[3, 71] = -0.0
        with pytest.raises(ArgumentError, match="zero=1"):
            onebit.pack(wrong, axis)
        wrong[3, 71] = float("-inf")
        assert onebit.unpack(onebit.pack(wrong, axis)).sum() == 7 * 528 - 2


def test_numbers_without_a_sign_are_refused() -> None:
    import torch

    with pytest.raises(DtypeError, match="complex64"):
        onebit.pack(torch.ones(3, dtype=torch.complex64, device="cuda"))


def test_explain_names_the_instruction_and_its_measured_peak() -> None:
    rng = np.random.default_rng(9)
    a, b = (onebit.pack(on_gpu(signs(rng, rows, 4096))) for rows in (1024, 1024))
    text = onebit.explain(a, b)
    assert "TOP/s in registers" in text
    chosen = next(line for line in text.splitlines() if line.startswith("engine")).split()[1]
    supported(chosen)
    faster = KERNELS[: KERNELS.index(chosen)]
    for kernel in faster:
        with pytest.raises(KernelError):
            onebit.matmul(a, b, kernel=kernel)
