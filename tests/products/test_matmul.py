"""`tilewright.matmul`: what NumPy's does, for any kind of array, in threads and in processes."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright
from tests.support import tiny_dlpack
from tests.support.cases import Case, operands
from tests.support.checks import assert_right
from tilewright import Device
from tilewright.backends.opencl import runtime
from tilewright.backends.opencl.rules import KEEPS_PROGRAMS
from tilewright.errors import OperandError
from tilewright.inputs.devices import backend_of
from tilewright.planning.cost import Curve, Measured
from tilewright.settings import MEMORY_WAYS
from tilewright.tuning import crossover, store
from tilewright.tuning.curves import to_json

WHERE = ["host", "opencl"]


def random(*shape: int, dtype: str = "float32", seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


# numpy.matmul's own rules for dimensions.

SHAPES = [
    ((5,), (5,)),
    ((5,), (5, 3)),
    ((4, 5), (5,)),
    ((4, 5), (5, 3)),
    ((2, 4, 5), (5,)),
    ((5,), (2, 5, 3)),
    ((2, 4, 5), (5, 3)),
    ((4, 5), (2, 5, 3)),
    ((2, 4, 5), (2, 5, 3)),
    ((2, 1, 4, 5), (3, 5, 3)),
    ((1, 4, 5), (7, 5, 3)),
    ((0,), (0,)),
    ((0, 5), (5, 3)),
    ((4, 0), (0, 3)),
    ((4, 5), (5, 0)),
    ((0, 4, 5), (5, 3)),
    ((2, 0, 5), (2, 5, 3)),
    ((3, 4, 0), (0,)),
]
KERNELS = [None, "naive"]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("left", "right"), SHAPES, ids=str)
def test_dimensions_are_numpys(
    left: tuple[int, ...], right: tuple[int, ...], kernel: str | None, opencl_device: Device
) -> None:
    a, b = random(*left), random(*right, seed=1)
    wanted = np.matmul(a, b)
    result = tilewright.matmul(a, b, device=opencl_device, kernel=kernel)
    assert type(result) is type(wanted)
    assert result.dtype == wanted.dtype
    np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("left", "right"), SHAPES, ids=str)
def test_out_has_the_dimensions_of_the_result(
    left: tuple[int, ...], right: tuple[int, ...], kernel: str | None, opencl_device: Device
) -> None:
    a, b = random(*left), random(*right, seed=1)
    wanted = 2 * np.matmul(a, b)
    base = np.full((*wanted.shape, 2), np.nan, np.float32)
    out = base[..., 1]
    call = {"out": out, "alpha": 2.0, "device": opencl_device, "kernel": kernel}
    assert tilewright.matmul(a, b, **call) is out
    np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-6)
    assert np.isnan(base[..., 0]).all()


@pytest.mark.parametrize("where", WHERE)
def test_transposes_leave_vectors_alone(where: str) -> None:
    vector, matrix = random(5), random(3, 5)
    flags = {"transpose_a": True, "transpose_b": True, "device": where}
    np.testing.assert_allclose(
        tilewright.matmul(vector, matrix, **flags), vector @ matrix.T, rtol=1e-5
    )
    np.testing.assert_allclose(
        tilewright.matmul(matrix, random(3), **flags), matrix.T @ random(3), rtol=1e-5
    )


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_the_host_is_right(dtype: str) -> None:
    case = Case(37, 29, 401, dtype, transpose_a=True, alpha=0.5, beta=2.0, bias=True)
    for activation in (None, "relu", "gelu"):
        given = operands(Case(**{**vars(case), "activation": activation}))
        assert_right(
            tilewright.matmul(given.a, given.b, out=given.out, device="host", **given.options),
            given,
        )


@pytest.mark.parametrize("where", WHERE)
def test_elements_that_lie_across_their_alignment_are_read_right(where: str) -> None:
    records = np.zeros((30, 40), [("flag", "i1"), ("value", "f4")])
    records["value"] = random(30, 40)
    b = random(40, 50)
    result = tilewright.matmul(records["value"], b, device=where, kernel=KERNELS[where != "host"])
    np.testing.assert_allclose(result, records["value"] @ b, rtol=1e-4, atol=1e-5)


# Other kinds of arrays come back as what they were.


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("left", "right"), [((5,), (5,)), ((4, 5), (5, 3)), ((2, 4, 5), (5, 3))])
def test_dlpack_goes_in_and_comes_out(
    left: tuple[int, ...], right: tuple[int, ...], kernel: str | None, opencl_device: Device
) -> None:
    a, b = random(*left), random(*right, seed=1)
    result = tilewright.matmul(
        tiny_dlpack.Tensor(a), tiny_dlpack.Tensor(b), device=opencl_device, kernel=kernel
    )
    assert isinstance(result, tiny_dlpack.Tensor)
    np.testing.assert_allclose(np.from_dlpack(result), a @ b, rtol=1e-5, atol=1e-6)


def test_dlpack_is_written_where_it_lies(opencl_device: Device) -> None:
    a, b, c = random(4, 5), random(5, 3), np.full((4, 3), np.nan, np.float32)
    out = tiny_dlpack.Tensor(c)
    assert tilewright.matmul(a, b, out=out, device=opencl_device, kernel="naive") is out
    np.testing.assert_allclose(c, a @ b, rtol=1e-5, atol=1e-6)


def test_torch_goes_in_and_comes_out() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    a, b = torch.randn(4, 5, requires_grad=True), torch.randn(5, 3)
    result = tilewright.matmul(a, b)
    assert isinstance(result, torch.Tensor)
    torch.testing.assert_close(result, (a @ b).detach())
    assert tilewright.matmul(b[:, 0], b[:, 1]).shape == ()


@pytest.fixture(scope="module")
def queue(opencl_device: Device) -> Iterator[Any]:
    """A command queue of somebody else's, on a context of their own."""
    cl = runtime.pyopencl()
    context = cl.Context([runtime.session(opencl_device).cl_device])
    yield cl.CommandQueue(context)
    del context  # Intel's driver forgets a context that only its queues hold


@pytest.mark.parametrize(("left", "right"), [*SHAPES[:11], *SHAPES[12:15]], ids=str)
def test_pyopencl_arrays_go_in_and_come_out(
    left: tuple[int, ...], right: tuple[int, ...], queue: Any
) -> None:
    import pyopencl.array as cl_array

    a, b = random(*left), random(*right, seed=1)
    result = tilewright.matmul(cl_array.to_device(queue, a), cl_array.to_device(queue, b))
    assert isinstance(result, cl_array.Array)
    assert result.queue is queue
    np.testing.assert_allclose(result.get(), a @ b, rtol=1e-5, atol=1e-6)


def test_pyopencl_views_are_read_and_written_where_they_lie(queue: Any) -> None:
    import pyopencl.array as cl_array

    host = random(40, 30)
    whole = cl_array.to_device(queue, host)
    a, b = whole[3:17, 2:22], whole[5:25, 1:12]
    base = cl_array.to_device(queue, np.full((20, 20), 7, np.float32))
    out = base[4:18, 5:16]
    assert tilewright.matmul(a, b.T, out=out, transpose_b=True, beta=1.0) is out
    wanted = np.full((20, 20), 7, np.float32)
    wanted[4:18, 5:16] += host[3:17, 2:22] @ host[5:25, 1:12]
    np.testing.assert_allclose(base.get(), wanted, rtol=1e-5, atol=1e-5)


def test_pyopencl_products_are_queued_in_order(queue: Any) -> None:
    import pyopencl.array as cl_array

    host = random(200, 200) / 20
    power, wanted = cl_array.to_device(queue, host), host
    base = cl_array.to_device(queue, host)
    for _ in range(10):
        power, wanted = tilewright.matmul(power, base), wanted @ host
    np.testing.assert_allclose(power.get(), wanted, rtol=1e-2, atol=1e-4)


# Tilewright's own arrays.


@pytest.mark.parametrize("way", MEMORY_WAYS)
def test_an_array_is_mapped_used_and_mapped_again(way: str, device: Device) -> None:
    a, b = random(37, 23), random(23, 29)
    left = tilewright.asarray(a, device=device, memory=way)
    right = tilewright.empty((23, 29), device=device, memory=way)
    with right.map() as view:
        assert view.shape == (23, 29)
        view[...] = b
    result = tilewright.matmul(left, right)
    assert isinstance(result, tilewright.Array)
    assert (result.shape, result.dtype, result.device) == ((37, 29), np.float32, device)
    with result.map() as view:
        np.testing.assert_allclose(view, a @ b, rtol=1e-5, atol=1e-6)
        view[...] = 1
    again = tilewright.matmul(right, result, transpose_b=True)
    np.testing.assert_allclose(again, b @ np.ones((29, 37)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("way", MEMORY_WAYS)
def test_shapes_of_every_rank_are_held(way: str, where: str) -> None:
    for shape in ((), (0,), (7,), (3, 0, 2), (2, 3, 4)):
        held = tilewright.asarray(random(*shape), device=where, memory=way)
        assert (held.shape, held.ndim) == (shape, len(shape))
        np.testing.assert_array_equal(held, random(*shape))


@pytest.mark.parametrize("where", WHERE)
def test_a_result_is_of_the_kind_of_a(where: str) -> None:
    for left, right in SHAPES[:11]:
        a, b = random(*left), random(*right, seed=1)
        result = tilewright.matmul(
            tilewright.asarray(a, device=where), tilewright.asarray(b, device=where)
        )
        assert isinstance(result, tilewright.Array)
        assert result.shape == (a @ b).shape
        with result.map() as view:
            np.testing.assert_allclose(view, a @ b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("where", WHERE)
def test_no_steps_of_k_leave_beta_times_out(where: str) -> None:
    a, b = (tilewright.empty(shape, device=where) for shape in ((4, 0), (0, 3)))
    out = tilewright.asarray(np.ones((4, 3), np.float32), device=where)
    tilewright.matmul(a, b, out=out, beta=0.5)
    np.testing.assert_array_equal(out, np.full((4, 3), 0.5))
    tilewright.matmul(a, b, out=out)
    np.testing.assert_array_equal(out, np.zeros((4, 3)))


@pytest.mark.parametrize("where", WHERE)
def test_an_empty_result_needs_no_kernel(where: str) -> None:
    a, b = (tilewright.empty(shape, device=where) for shape in ((4, 5), (5, 0)))
    assert tilewright.matmul(a, b).shape == (4, 0)


def test_transposed_arrays_share_their_memory(opencl_device: Device) -> None:
    a = random(37, 23)
    held = tilewright.asarray(a, device=opencl_device)
    np.testing.assert_array_equal(held.T, a.T)
    assert held.T.memory is held.memory
    np.testing.assert_allclose(tilewright.matmul(held.T, held), a.T @ a, rtol=1e-4, atol=1e-5)


def test_memory_that_is_used_in_place_is_the_arrays_own(opencl_device: Device) -> None:
    a = random(16, 16)
    held = tilewright.asarray(a, device=opencl_device, memory="use")
    with held.map() as view:
        view[...] = 3
    assert (a == 3).all()


def test_the_environment_chooses_the_way_of_memory(
    monkeypatch: pytest.MonkeyPatch, opencl_device: Device
) -> None:
    monkeypatch.setenv("TILEWRIGHT_MEMORY", "use")
    a = random(16, 16)
    with tilewright.asarray(a, device=opencl_device).map() as view:
        view[...] = 3
    assert (a == 3).all()


@pytest.mark.parametrize("where", WHERE)
def test_a_mapped_array_is_not_to_be_used(where: str) -> None:
    held = tilewright.asarray(random(8, 8), device=where)
    other = tilewright.asarray(random(8, 8), device=where)
    with held.map():
        for call in (
            lambda: tilewright.matmul(held, other),
            lambda: tilewright.matmul(other, held),
            lambda: tilewright.matmul(other, other, out=held),
            lambda: np.asarray(held),
            lambda: held.map().__enter__(),
        ):
            with pytest.raises(OperandError, match="mapped"):
                call()
    tilewright.matmul(held, other)


def test_arrays_outlive_their_names_until_the_product_is_done(opencl_device: Device) -> None:
    def ones() -> tilewright.Array:
        own = np.ones((900, 900), np.float32)
        return tilewright.asarray(own, device=opencl_device, memory="use")

    results = [tilewright.matmul(ones(), ones()) for _ in range(5)]
    others = [np.full((900, 900), np.nan, np.float32) for _ in range(10)]  # where those were
    for result in results:
        np.testing.assert_array_equal(result, np.full((900, 900), 900))
    del others


# The crossover with the host.


def test_small_products_stay_on_the_host_and_explain_says_why(opencl_device: Device) -> None:
    report = tilewright.explain(random(32, 32), random(32, 32), device=opencl_device)
    assert "engine     host" in report
    assert "because    too small for any launch to pay" in report


def test_explain_gives_the_measured_crossover(opencl_device: Device) -> None:
    known = replace(opencl_device, driver="of which curves are stored")
    backend = backend_of(known)
    host, panel = (
        Curve(((2e6, least), (2e9, 2e9 / rate))) for least, rate in ((1e-5, 1e11), (1e-4, 4e11))
    )
    curves = to_json(Measured(host, (("panel", panel),), 1e10, None))
    store.save(crossover._key(known, backend.priors(known)), {"float32": curves})
    report = tilewright.explain(random(1000, 1000), random(1000, 1000), device=known)
    assert "engine     panel" in report
    assert "crossover  measured: " in report
    assert "predicted  " in report
    assert "GFLOP/s" in report


def test_explain_tells_of_a_kernel_that_was_forced(opencl_device: Device) -> None:
    a = random(130, 70)
    report = tilewright.explain(a, a, transpose_b=True, device=opencl_device, kernel="naive")
    assert "C[130 x 130] = A[130 x 70] @ B[70 x 130], float32 summed in float32" in report
    assert "engine     naive" in report
    assert "because    the caller chose it" in report
    assert "launch     naive  global" in report


# Threads and processes.


@pytest.mark.parametrize("kernel", ["naive", "coalesced", "image_ab", "local", "panel"])
def test_two_threads_at_once_are_right(kernel: str, device: Device) -> None:
    start = threading.Barrier(2)

    def work(seed: int) -> None:
        start.wait()
        for turn in range(25):
            given = operands(Case(37 + seed, 29, 23 + turn % 3, bias=True, beta=1.0), seed)
            call = {"out": given.out, "device": device, "kernel": kernel, **given.options}
            assert_right(tilewright.matmul(given.a, given.b, **call), given)

    with ThreadPoolExecutor(2) as pool:
        for future in [pool.submit(work, seed) for seed in range(2)]:
            future.result()


def in_process(script: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def output_of(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    return out


FIRST_THREADS = """
    import threading, numpy as np, tilewright
    start, wrong = threading.Barrier(8), []
    def work():
        start.wait()
        try:
            a = tilewright.asarray(np.ones((70, 70), np.float32), device="opencl")
            if not (np.asarray(tilewright.matmul(a, a, kernel="naive")) == 70).all():
                wrong.append("result")
        except BaseException as error:
            wrong.append(error)
    threads = [threading.Thread(target=work) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not wrong, wrong
"""


@pytest.mark.usefixtures("opencl_device")
def test_threads_may_be_the_first_to_use_the_library() -> None:
    for _ in range(3):
        output_of(in_process(FIRST_THREADS))


PRODUCT = """
    import sys, numpy as np, tilewright
    a = np.ones((70, 70), np.float32)
    for kernel in ("naive", "coalesced", "dot4", "image_b"):
        assert (tilewright.matmul(a, a, device="opencl", kernel=kernel) == 70).all()
"""


def test_two_processes_share_a_cache_and_a_third_compiles_nothing(
    tmp_path: Path, opencl_device: Device
) -> None:
    if opencl_device.platform in KEEPS_PROGRAMS:
        pytest.skip("the only OpenCL driver keeps programs itself")
    folder = {"TILEWRIGHT_CACHE": str(tmp_path)}
    for process in [in_process(PRODUCT, **folder) for _ in range(2)]:
        output_of(process)
    programs = {path: path.stat().st_mtime_ns for path in (tmp_path / "programs").iterdir()}
    assert {path.suffix for path in programs} == {".bin"}
    refused = "from tilewright.backends.opencl import program\nprogram._build = None\n"
    output_of(in_process(refused + textwrap.dedent(PRODUCT), **folder))
    assert programs == {path: path.stat().st_mtime_ns for path in (tmp_path / "programs").iterdir()}


IMPORTS = """
    import sys, time
    begun = time.process_time()
    import numpy, numpy.typing
    between, before = time.process_time(), set(sys.modules)
    import tilewright
    print(between - begun, time.process_time() - between)
    new = {name.partition(".")[0] for name in set(sys.modules) - before}
    foreign = new - set(sys.stdlib_module_names) - {"platformdirs", "tilewright"}
    assert not foreign, foreign
    assert len(set(sys.modules) - before) < 200
"""


def test_import_loads_little_but_numpy_and_takes_about_as_long_as_numpys() -> None:
    """In seconds of the processor, the least of five: 1.3 times NumPy's where it was written."""
    runs = [output_of(in_process(IMPORTS)).split() for _ in range(5)]
    numpys, ours = (min(map(float, column)) for column in zip(*runs, strict=True))
    assert ours < 3 * numpys


def test_compiling_in_two_threads_leaves_the_warning_filters_alone(
    intel: Device, pocl: Device, tmp_path: Path
) -> None:
    before = list(warnings.filters)
    ones = np.ones((4, 4), np.float32)

    def work(device: Device) -> None:
        for turn in range(2):
            new = replace(device, driver=f"{tmp_path} {turn}")  # nothing of it is compiled yet
            for kernel in ("naive", "dot4", "coalesced"):
                assert (tilewright.matmul(ones, ones, device=new, kernel=kernel) == 4).all()

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(work, (intel, pocl))) == [None, None]
    assert list(warnings.filters) == before
