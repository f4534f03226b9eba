"""Arrays on an OpenCL device: other queues, odd places, who shares memory, and what is kept."""

from __future__ import annotations

import gc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright import Device, RaggedBatch
from tilewright.arrays.views import view
from tilewright.backends import backends
from tilewright.backends.opencl import batches, program, runtime
from tilewright.backends.opencl.rules import KEEPS_PROGRAMS
from tilewright.errors import DeviceError, OperandError, OverlapError
from tilewright.facts.kernel import Launch
from tilewright.facts.problem import Problem

OPENCL = backends()["opencl"]
# Work for some hundredths of a second, then `value` everywhere.
SLOW = """__kernel void slow(__global float *x, float value, int n) {
    float sum = 0;
    for (int j = 0; j < n; j++) sum += sin((float)j * 1e-3f);
    x[get_global_id(0)] = value + 0 * sum;
}"""


@pytest.fixture(scope="module")
def opened(intel: Device) -> Any:
    cl = runtime.pyopencl()
    return cl.Context([runtime.session(intel).cl_device])


@pytest.fixture
def queues(opened: Any) -> tuple[Any, Any]:
    cl = runtime.pyopencl()
    return cl.CommandQueue(opened), cl.CommandQueue(opened)


def on(queue: Any, value: Any) -> Any:
    import pyopencl.array

    return pyopencl.array.to_device(queue, value)


def slowly(queue: Any, array: Any, value: float) -> Any:
    """Fill `array` on `queue`, after a while; the event."""
    cl = runtime.pyopencl()
    kernel = cl.Kernel(cl.Program(queue.context, SLOW).build(), "slow")
    steps = np.int32(20_000)
    event = kernel(queue, (array.size,), None, array.base_data, np.float32(value), steps)
    queue.flush()
    return event


ONES = np.ones((64, 64), np.float32)
EYE = np.eye(64, dtype=np.float32)


@pytest.mark.parametrize("late", ["a", "b", "bias", "out"])
def test_what_is_still_computed_on_another_queue_is_waited_for(
    late: str, queues: tuple[Any, Any]
) -> None:
    here, there = queues
    arrays = {name: on(here, EYE if name == "b" else ONES) for name in ("a", "b", "out")}
    arrays["bias"] = on(here, ONES[0])
    arrays[late] = on(there, arrays[late].get())
    there.finish()
    before = {name: array.get() for name, array in arrays.items()}
    slowly(there, arrays[late], 3.0)
    before[late] = np.full_like(before[late], 3.0)
    out = arrays.pop("out")
    # `a` says on which queue the product runs.
    tilewright.matmul(**arrays, out=out, beta=1.0, device=None)
    want = before["a"] @ before["b"] + before["bias"] + before["out"]
    np.testing.assert_allclose(out.get(), want, rtol=1e-5)


def test_events_of_an_array_are_waited_for_wherever_they_run(queues: tuple[Any, Any]) -> None:
    here, there = queues
    a, b = on(here, EYE), on(here, ONES)
    b.add_event(slowly(there, b, 5.0))
    np.testing.assert_array_equal(tilewright.matmul(a, b).get(), 5 * ONES)


def test_another_queue_writes_an_operand_only_after_the_product(queues: tuple[Any, Any]) -> None:
    here, there = queues
    a, b = on(here, EYE), on(there, ONES)
    there.finish()
    slowly(here, on(here, ONES), 0.0)  # so that the product has to wait
    result = tilewright.matmul(a, b)
    b.fill(9.0)
    np.testing.assert_array_equal(result.get(), ONES)


def test_queues_of_other_contexts_and_none_at_all_are_refused(
    intel: Device, queues: tuple[Any, Any]
) -> None:
    cl = runtime.pyopencl()
    context = cl.Context([runtime.session(intel).cl_device])
    other = cl.CommandQueue(context)
    a, b = on(queues[0], ONES), on(other, ONES)
    with pytest.raises(OperandError, match=r"b\.queue: a queue of another context"):
        tilewright.matmul(a, b)
    with pytest.raises(OperandError, match=r"b\.queue: no queue"):
        tilewright.matmul(a, b.with_queue(None))


@pytest.mark.parametrize(
    ("offset", "strides"), [(2, (256, 4)), (0, (258, 4)), (0, (256, 6)), (1, (257, 5))]
)
def test_arrays_between_elements_are_refused(
    offset: int, strides: tuple[int, int], queues: tuple[Any, Any]
) -> None:
    import pyopencl.array

    whole = on(queues[0], np.zeros(3 * 64 * 64, np.float32))
    odd = pyopencl.array.Array(
        queues[0], (32, 32), np.float32, data=whole.base_data, offset=offset, strides=strides
    )
    good = on(queues[0], ONES[:32, :32].copy())
    for arguments in (
        {"a": odd, "b": good},
        {"a": good, "b": odd},
        {"a": good, "b": good, "out": odd},
    ):
        with pytest.raises(OperandError, match="accepted are multiples of an element's 4 bytes"):
            tilewright.matmul(**arguments)


def test_sliding_windows_are_right_with_every_kernel(intel: Device) -> None:
    line = np.random.default_rng(0).standard_normal(576).astype(np.float32)
    window = np.lib.stride_tricks.sliding_window_view(line, 64)[:512]
    other = np.random.default_rng(1).standard_normal((64, 64)).astype(np.float32)
    for kernel in tilewright.kernels(intel):
        for a, b in ((window, other), (other, window[:64])):
            result = tilewright.matmul(a, b, device=intel, kernel=kernel)
            np.testing.assert_allclose(result, a @ b, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("a", [(64, 1), (1, 64), (1, 1), (66, 1), (1, 66), (128, 2), (0, 1)])
@pytest.mark.parametrize("b", [(64, 1), (1, 64), (1, 1)])
def test_wide_loads_are_planned_only_where_each_one_is_aligned(
    a: tuple[int, int], b: tuple[int, int], aligned: bool, intel: Device
) -> None:
    """Of rows or columns that are dense, begin at multiples of 16 bytes, and hold whole vectors."""
    (kernel,) = (one for one in OPENCL.kernels(intel) if one.name == "local")
    problem = Problem(64, 64, 64, *a, *b, 64, 1, aligned=aligned)
    widths = {config.vector for config in kernel.configs(problem, intel)}
    wide = aligned and all(sorted(steps) in ([1, 64], [0, 1]) for steps in (a, b))
    assert widths == ({4} if wide else {1})


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("sizes", [(64, 64, 64), (63, 64, 64), (64, 63, 64), (64, 64, 63)])
@pytest.mark.parametrize("turned", ["", "a", "b", "ab"])
def test_wide_loads_fill_rows_to_the_end(
    turned: str, sizes: tuple[int, int, int], dtype: str, intel: Device
) -> None:
    """Of rows of 63 elements the last load would be cut, wherever the next row begins."""
    m, n, k = sizes
    a, b = ((1, 64) if "a" in turned else (64, 1)), ((1, 64) if "b" in turned else (64, 1))
    problem = Problem(m, n, k, *a, *b, 64, 1, dtype=dtype, accumulate=dtype, aligned=True)
    (kernel,) = (one for one in OPENCL.kernels(intel) if one.name == "local")
    widths = {config.vector for config in kernel.configs(problem, intel)}
    whole = (m if "a" in turned else k) == 64 == (k if "b" in turned else n)
    assert (widths == {1}) == (not whole)


@pytest.mark.parametrize("features", ["svm_system", "unified_memory", "none"])
def test_what_begins_between_sixteen_bytes_is_not_called_aligned(
    features: str, intel: Device
) -> None:
    """Copied to the device it begins anew; read in place, or lying there, it does not."""
    near = {"svm_system", "unified_memory"}
    device = replace(intel, features=(intel.features - near) | ({features} - {"none"}))
    copied = features == "none"
    whole = np.zeros(3 * 8 * 8 + 8, np.float32)
    whole = whole[-whole.ctypes.data % 16 // 4 :]

    def aligned(array: Any) -> bool:
        return OPENCL.layout(view(array, "a"), device).aligned

    assert aligned(whole[:64].reshape(8, 8))
    assert aligned(whole[1:65].reshape(8, 8)) == copied
    assert aligned(whole[: 3 * 64].reshape(3, 8, 8))
    assert not aligned(np.zeros((3, 7, 9), np.float32)), "the second matrix begins in between"
    there = tilewright.asarray(np.zeros((8, 8), np.float32), device=intel, memory="allocate")
    assert aligned(there)


# Overlap.


def test_two_arrays_on_one_host_array_overlap(intel: Device) -> None:
    line = np.zeros(3 * 64 * 64, np.float32)

    def lies(first: int) -> Any:
        part = line[64 * first : 64 * (first + 64)].reshape(64, 64)
        return tilewright.asarray(part, device=intel, memory="use")

    a, apart = lies(0), lies(64)
    b = tilewright.asarray(ONES, device=intel)
    for out in (lies(0), lies(63)):
        with pytest.raises(OverlapError, match="out: shares memory with a"):
            tilewright.matmul(a, b, out=out, kernel="naive")
    with pytest.raises(OverlapError, match="out: shares memory with b"):
        tilewright.matmul(b, a, out=lies(1), kernel="naive")
    assert tilewright.matmul(a, b, out=apart, kernel="naive") is apart


def aliases(device: Device) -> list[tuple[Any, Any]]:
    """Pairs of flat arrays on the very same memory."""
    memory = np.full(5000, 7, np.float32)
    first, second = (tilewright.asarray(memory, device=device, memory="use") for _ in range(2))
    own = tilewright.asarray(memory, device=device)
    another = tilewright.Array(own.memory, own.shape, own.dtype)
    return [(own, own), (own, another), (own, own.T), (first, second)]


@pytest.mark.parametrize("pair", range(4))
@pytest.mark.parametrize("place", ["a", "b", "out"])
def test_batches_on_one_memory_overlap(intel: Device, pair: int, place: str) -> None:
    flat, same = aliases(intel)[pair]
    apart = tilewright.asarray(np.ones(64 * 64, np.float32), device=intel)
    whole = [64], [64]
    operands = {name: RaggedBatch(apart, *whole, [0]) for name in ("a", "b")}
    out = RaggedBatch(flat, *whole, [0])
    if place == "out":  # apart from the inputs, its two matrices meet each other
        twice = RaggedBatch(flat, [64, 64], [64, 64], [0, 17])
        operands = {name: RaggedBatch(apart, [64] * 2, [64] * 2, [0, 0]) for name in ("a", "b")}
        with pytest.raises(OverlapError, match=r"out\[1\]: overlaps out\[0\]"):
            tilewright.grouped_matmul(**operands, out=twice)
        return
    operands[place] = RaggedBatch(same, *whole, [100])
    with pytest.raises(OverlapError, match=rf"out: shares memory with {place}\[0\]; accepted"):
        tilewright.grouped_matmul(**operands, out=out)
    assert (np.asarray(flat) == 7).all()
    operands[place] = RaggedBatch(same, [4], [4], [64 * 64])  # behind it
    small = RaggedBatch(apart, [4], [4], [0])
    rest = {"a": small, "b": small, place: operands[place]}
    tilewright.grouped_matmul(**rest, out=RaggedBatch(flat, [4], [4], [0]))
    np.testing.assert_array_equal(np.asarray(flat)[:16], 28)


def test_a_mapped_batch_is_refused_when_bound_and_when_run(intel: Device) -> None:
    flat = tilewright.asarray(np.ones(16, np.float32), device=intel)
    batch = RaggedBatch(flat, [4], [4], [0])
    plan = tilewright.plan_grouped([4], [4], [4], device=intel)
    run = plan.bind(batch, batch)
    with flat.map():
        for call in (lambda: plan.bind(batch, batch), run):
            with pytest.raises(OperandError, match=r"a\.flat=.*mapped"):
                call()
    np.testing.assert_array_equal(run().to("host")[0], 4)


def test_a_batch_on_a_device_wants_elements_that_follow_each_other(intel: Device) -> None:
    flat = tilewright.asarray(np.ones(16, np.float32), device=intel)
    for step in (2, -1, 0):
        with pytest.raises(OperandError, match=r"flat\.strides"):
            RaggedBatch(tilewright.Array(flat.memory, (8,), flat.dtype, (step,)), [2], [2], [0])


def test_parts_of_one_buffer_overlap(queues: tuple[Any, Any]) -> None:
    import pyopencl.array

    whole = on(queues[0], np.zeros((256, 64), np.float32)).base_data

    def lies(first: int) -> Any:
        part = whole.get_sub_region(64 * 4 * first, 64 * 64 * 4)
        return pyopencl.array.Array(queues[0], (64, 64), np.float32, data=part)

    b = on(queues[0], ONES)
    with pytest.raises(OverlapError):
        tilewright.matmul(lies(0), b, out=lies(32))
    whole_view = pyopencl.array.Array(queues[0], (64, 64), np.float32, data=whole)
    with pytest.raises(OverlapError):
        tilewright.matmul(whole_view, b, out=lies(32))
    out = lies(64)
    assert tilewright.matmul(lies(0), b, out=out) is out


# What is kept.


def held(session_: runtime.Session) -> dict[str, Any]:
    keys = [key for key in runtime._scratch.keys() if key[0] is session_]  # noqa: SIM118
    return {name: runtime._scratch.get((session_, name)) for _, name in keys}


@pytest.fixture
def alone(intel: Device) -> Device:
    """A device with a session of its own."""
    return replace(intel, compute_units=intel.compute_units + 1)


def test_scratch_that_grew_is_given_back_with_whoever_held_it(alone: Device) -> None:
    session_ = runtime.session(alone)
    seen: dict[int, int] = {}
    for size in range(100, 400, 20):
        ones = np.ones((size, size), np.float32)
        tilewright.matmul(ones, ones, device=alone, kernel="panel")
        for one, plan in runtime.executables.keys():  # noqa: SIM118
            if one is session_:
                made = runtime.executables.get((one, plan))
                for _, arguments in made.launches:
                    for value in arguments._set.values():
                        if hasattr(value, "size") and hasattr(value, "int_ptr"):
                            seen[value.int_ptr] = value.size
    alive = sum(
        {
            value.int_ptr: value.size
            for one, plan in runtime.executables.keys()  # noqa: SIM118
            if one is session_
            for _, arguments in runtime.executables.get((one, plan)).launches
            for value in arguments._set.values()
            if hasattr(value, "size") and hasattr(value, "int_ptr")
        }.values()
    )
    assert alive <= sum(buffer.size for buffer in held(session_).values())
    assert len(seen) <= 2 * 8  # grows by half each time, not with every size


def test_programs_are_kept_but_for_drivers_that_keep_them(device: Device, own_store: Path) -> None:
    """PoCL would compile every kernel twice: once more for groups of any size, in the binary."""
    tilewright.forget()
    ones = np.ones((3, 5), np.float32)
    assert (tilewright.matmul(ones, ones.T, device=device, kernel="naive") == 5).all()
    kept = list((own_store / "programs").glob("*.bin"))
    assert len(kept) == (device.platform not in KEEPS_PROGRAMS)


def test_forget_gives_scratch_and_programs_back(alone: Device) -> None:
    ones = np.ones((100, 100), np.float32)
    want = tilewright.matmul(ones, ones, device=alone, kernel="panel")
    session_ = runtime.session(alone)
    assert held(session_)
    tilewright.forget()
    gc.collect()
    assert not held(session_)
    assert len(runtime.executables) == len(runtime.programs) == 0
    again = tilewright.matmul(ones, ones, device=alone, kernel="panel")
    np.testing.assert_array_equal(again, want)


def test_very_large_scratch_is_not_kept(alone: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.backends.opencl import executable

    session_ = runtime.session(alone)
    session_.release_scratch()
    for module in (runtime, executable):
        monkeypatch.setattr(module, "MOST_KEPT", 1 << 16)
    monkeypatch.setattr(runtime.executables, "most", 1 << 17)
    ones = np.ones((300, 300), np.float32)
    for _ in range(2):
        result = tilewright.matmul(ones, ones, device=alone, kernel="panel")
        np.testing.assert_array_equal(result, np.full((300, 300), 300, np.float32))
    assert not held(session_)
    assert not [key for key in runtime.executables.keys() if key[0] is session_]  # noqa: SIM118


# Drivers that fail.


def test_a_device_that_does_not_open_is_one_clear_error(
    intel: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    cl = runtime.pyopencl()

    def refused(devices: Any) -> Any:
        raise cl.RuntimeError("Context failed: DEVICE_NOT_AVAILABLE")

    monkeypatch.setattr(cl, "Context", refused)
    broken = replace(intel, driver="it does not open")
    ones = np.ones((100, 100), np.float32)
    with pytest.raises(DeviceError, match=r"does not open: .*use another device, or device='host'"):
        tilewright.matmul(ones, ones, device=broken, kernel="naive")
    for _ in range(3):  # a product that nobody forced there stays on the host
        np.testing.assert_array_equal(tilewright.matmul(ones, ones, device=broken), 100 * ones)


def test_compilers_are_told_to_count_no_warnings() -> None:
    launch = Launch("naive", "naive", (("PRECISION", 32),), (1, 1), (1, 1), ())
    assert "-w" in program._options(launch)


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The kernels that are enqueued from here on."""
    cl, seen = runtime.pyopencl(), []
    really = cl.enqueue_nd_range_kernel

    def enqueue(queue: Any, kernel: Any, *sizes: Any, **options: Any) -> Any:
        seen.append(kernel.function_name)
        return really(queue, kernel, *sizes, **options)

    monkeypatch.setattr(cl, "enqueue_nd_range_kernel", enqueue)
    return seen


def drawn(*shape: int, dtype: str = "float32") -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


PAIRS: dict[str, tuple[Any, Any]] = {
    "equal": (drawn(30, 5, 7), drawn(30, 7, 4)),
    "two leading": (drawn(4, 6, 33, 18), drawn(4, 6, 18, 50)),
    "one b for all": (drawn(30, 5, 7), drawn(7, 4)),
    "one a for all": (drawn(5, 7), drawn(3, 8, 7, 4)),
    "broadcast": (drawn(3, 1, 5, 7), drawn(1, 9, 7, 4)),
    "a vector": (drawn(30, 5, 7), drawn(7)),
    "no depth": (drawn(9, 5, 0), drawn(9, 0, 4)),
}


@pytest.mark.parametrize("kind", ["tilewright", "pyopencl"])
@pytest.mark.parametrize("pair", PAIRS)
def test_a_batch_of_equal_products_is_one_launch(
    pair: str, kind: str, launches: list[Any], opencl_device: Device, queues: tuple[Any, Any]
) -> None:
    a, b = PAIRS[pair]

    def there(x: Any) -> Any:
        if kind == "pyopencl":
            return on(queues[0], x)
        return tilewright.asarray(x, device=opencl_device)

    got = tilewright.matmul(there(a), there(b))
    shown = got.get() if kind == "pyopencl" else np.asarray(got)
    np.testing.assert_allclose(shown, np.float64(a) @ b, rtol=1e-4, atol=1e-4)
    assert len(launches) == 1
    assert "; one launch" in tilewright.explain(there(a), there(b))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_batch_lies_as_it_lies_and_takes_every_option(
    dtype: str, launches: list[Any], opencl_device: Device
) -> None:
    if dtype not in opencl_device.dtypes:
        pytest.skip(f"{opencl_device.id} stores no {dtype}")
    a, b, c = (drawn(*s, dtype=dtype) for s in ((6, 4, 9, 20), (20, 11, 4, 6), (6, 4, 9, 11)))
    bias = drawn(11, dtype=dtype)

    def there(x: Any) -> Any:
        return tilewright.asarray(x, device=opencl_device)

    out = there(c)
    given = {"alpha": -0.5, "beta": 2.0, "bias": there(bias), "activation": "relu"}
    found = tilewright.matmul(there(a), there(b).T, out=out, transpose_b=True, **given)
    assert found is out
    assert len(launches) == 1
    made = -0.5 * np.float64(a) @ np.swapaxes(np.float64(b).T, -1, -2) + 2.0 * c + bias
    slack = {"float16": 0.1, "float32": 1e-4, "float64": 1e-12}[dtype]
    np.testing.assert_allclose(np.asarray(out), np.maximum(made, 0), atol=slack, rtol=slack)
    launches.clear()
    tilewright.matmul(there(a), there(b).T, transpose_b=True, kernel="naive")
    assert len(launches) == 24  # a kernel that is named is launched for each


def test_large_products_of_a_batch_keep_the_kernel_that_is_best_for_one(
    launches: list[Any], opencl_device: Device
) -> None:
    a = tilewright.asarray(drawn(8, 260, 260), device=opencl_device)
    got = np.asarray(tilewright.matmul(a, a))
    np.testing.assert_allclose(got, np.float64(a) @ np.float64(a), rtol=1e-3, atol=1e-3)
    assert len(launches) >= 8
    assert "8 of these; launched one after another" in tilewright.explain(a, a)


def test_a_batch_of_very_many_products_is_a_few_launches(
    launches: list[Any], opencl_device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "_MOST", 64)
    a = drawn(150, 3, 2)
    there = tilewright.asarray(a, device=opencl_device)
    got = np.asarray(tilewright.matmul(there, there, transpose_b=True))
    np.testing.assert_allclose(got, a @ np.swapaxes(a, 1, 2), rtol=1e-5)
    assert len(launches) == 3
