"""Bad input: one clear error of `tilewright.errors`, naming the argument, and `out` as it was."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright
from tests.support import tiny_dlpack
from tilewright import Device, settings
from tilewright.backends import backends
from tilewright.backends.opencl import program, runtime
from tilewright.backends.opencl.rules import KEEPS_PROGRAMS
from tilewright.errors import (
    ArgumentError,
    CacheError,
    CacheWarning,
    DeviceError,
    DeviceMemoryError,
    DtypeError,
    KernelError,
    OperandError,
    OverlapError,
    ShapeError,
    TilewrightError,
)
from tilewright.files import cache
from tilewright.planning.cost import Curve, Measured
from tilewright.tuning import crossover, curves, store

A, B = np.ones((4, 5), np.float32), np.ones((5, 3), np.float32)
BASE = np.ones(200, np.float32)
OVERLAPPING = BASE[:20].reshape(4, 5), BASE[100:115].reshape(5, 3)
RECORDS = np.zeros((4, 3), [("flag", "i1"), ("value", "f4")])


def out(*shape: int, dtype: str = "float32") -> Any:
    return np.full(shape, 7, dtype)


def read_only() -> Any:
    array = out(4, 3)
    array.flags.writeable = False
    return array


# What is passed, the error, and words that its message must contain.
CALLS: list[tuple[str, tuple[Any, Any], dict[str, Any], type[TilewrightError], list[str]]] = [
    # Shapes.
    ("inner dimensions", (A, A), {}, ShapeError, ["b.shape=(4, 5)", "4 rows", "5 columns"]),
    ("transposed inner", (A, B), {"transpose_a": True}, ShapeError, ["b.shape=(5, 3)", "(5, 4)"]),
    ("leading", (np.ones((2, 4, 5)), np.ones((3, 5, 3))), {}, ShapeError, ["b.shape", "(2,)"]),
    ("a scalar a", (np.float32(2) * np.ones(()), B), {}, OperandError, ["a=", "not an array"]),
    ("a rank of 0", (A, np.array(2, np.float32)), {}, ShapeError, ["b.shape=()"]),
    ("out's shape", (A, B), {"out": out(3, 4)}, ShapeError, ["out.shape=(3, 4)", "(4, 3)"]),
    ("out's rank", (A, B[:, 0]), {"out": out(4, 1)}, ShapeError, ["out.shape=(4, 1)", "(4,)"]),
    ("bias's shape", (A, B), {"bias": out(4)}, ShapeError, ["bias.shape=(4,)", "(3,)"]),
    # Element types.
    ("integers", (A.astype(int), B), {}, DtypeError, ["a.dtype='int64'", "float32"]),
    ("complex", (A, B.astype(complex)), {}, DtypeError, ["b.dtype='complex128'", "float32"]),
    ("objects", (A.astype(object), B), {}, DtypeError, ["a.dtype='object'", "float32"]),
    ("strings", (A.astype(str), B), {}, DtypeError, ["a.dtype='<U32'", "float32"]),
    ("long doubles", (A.astype(np.longdouble), B), {}, DtypeError, ["a.dtype", "float32"]),
    ("foreign bytes", (A.astype(">f4"), B), {}, DtypeError, ["a.dtype='>f4'", "native"]),
    ("two types", (A, B.astype("f8")), {}, DtypeError, ["b.dtype='float64'", "float32"]),
    ("out's type", (A, B), {"out": out(4, 3, dtype="f8")}, DtypeError, ["out.dtype='float64'"]),
    ("bias's type", (A, B), {"bias": out(3, dtype="f8")}, DtypeError, ["bias.dtype='float64'"]),
    # What is no array, or not reachable, or not writable.
    ("a list", ([[1.0]], B), {}, OperandError, ["a=[[1.0]]", "NumPy", "__dlpack__"]),
    ("nothing", (A, None), {}, OperandError, ["b=None", "NumPy"]),
    ("text", (A, "B"), {}, OperandError, ["b='B'", "NumPy"]),
    ("out a list", (A, B), {"out": [[0.0]]}, OperandError, ["out=[[0.0]]", "NumPy"]),
    ("elsewhere", (tiny_dlpack.Elsewhere(A), B), {}, OperandError, ["a=", "move it to the CPU"]),
    ("broken", (A, tiny_dlpack.Broken(B)), {}, OperandError, ["b=", "not today"]),
    ("read-only", (A, B), {"out": read_only()}, OperandError, ["out", "read-only", "writable"]),
    ("records", (A, B), {"out": RECORDS["value"]}, OperandError, ["out.strides=(15, 5)", "whole"]),
    # Memory that is shared.
    ("out is a", (A, np.ones((5, 5), "f4")), {"out": A}, OverlapError, ["out", "memory with a"]),
    ("out in b", OVERLAPPING, {"out": BASE[99:111].reshape(4, 3)}, OverlapError, ["with b"]),
    (
        "out on bias",
        (A, B),
        {"out": BASE[:12].reshape(4, 3), "bias": BASE[6:9]},
        OverlapError,
        ["memory with bias"],
    ),
    (
        "out repeats",
        (A, B),
        {"out": np.lib.stride_tricks.as_strided(out(3), (4, 3), (0, 4))},
        OverlapError,
        ["out.strides=(0, 1)"],
    ),
    # Scalars and names.
    ("alpha text", (A, B), {"alpha": "2"}, ArgumentError, ["alpha='2'", "real number"]),
    ("alpha complex", (A, B), {"alpha": 2j}, ArgumentError, ["alpha=2j", "real number"]),
    ("alpha array", (A, B), {"alpha": np.ones(1)}, ArgumentError, ["alpha=array", "real number"]),
    ("alpha none", (A, B), {"alpha": None}, ArgumentError, ["alpha=None", "real number"]),
    ("alpha bool", (A, B), {"alpha": True}, ArgumentError, ["alpha=True", "real number"]),
    ("alpha decimal", (A, B), {"alpha": Decimal(2)}, ArgumentError, ["alpha=Decimal", "real"]),
    ("alpha huge", (A, B), {"alpha": 10**400}, ArgumentError, ["alpha=1000", "real number"]),
    ("beta text", (A, B), {"beta": "0", "out": out(4, 3)}, ArgumentError, ["beta='0'"]),
    ("beta alone", (A, B), {"beta": 1.0}, ArgumentError, ["beta=1.0", "out="]),
    ("transpose", (A, B), {"transpose_a": "no"}, ArgumentError, ["transpose_a='no'", "True"]),
    ("transpose 0", (A, B), {"transpose_b": 0}, ArgumentError, ["transpose_b=0", "False"]),
    ("activation", (A, B), {"activation": "tanh"}, ArgumentError, ["activation='tanh'", "'gelu'"]),
    ("activation []", (A, B), {"activation": ["relu"]}, ArgumentError, ["activation=", "'relu'"]),
    ("precision", (A, B), {"precision": "tf32"}, ArgumentError, ["precision='tf32'", "None"]),
    ("accumulate", (A, B), {"accumulate": "fp16"}, ArgumentError, ["accumulate='fp16'", "float32"]),
    ("accumulate []", (A, B), {"accumulate": ["fp16"]}, ArgumentError, ["accumulate=['fp16']"]),
    # Devices and kernels.
    ("device", (A, B), {"device": "cuda:9"}, DeviceError, ["device='cuda:9'", "'host'"]),
    ("device's type", (A, B), {"device": 3.5}, DeviceError, ["device=3.5", "'host'"]),
    ("kernel", (A, B), {"kernel": "fast"}, KernelError, ["kernel='fast'", "'naive'", "'panel'"]),
    ("kernel's type", (A, B), {"kernel": ["naive"]}, KernelError, ["kernel=['naive']", "'naive'"]),
    (
        "a kernel of the host",
        (A, B),
        {"kernel": "naive", "device": "host"},
        KernelError,
        ["kernel='naive'", "'host'", "kernel=None"],
    ),
    (
        "a kernel that cannot",
        (A.astype("f8"), B.astype("f8")),
        {"kernel": "image_ab"},
        KernelError,
        ["kernel='image_ab'", "float16 and float32 only"],
    ),
]


@pytest.mark.usefixtures("opencl_device")
@pytest.mark.parametrize("function", [tilewright.matmul, tilewright.explain])
@pytest.mark.parametrize(
    ("operands", "options", "error", "words"),
    [case[1:] for case in CALLS],
    ids=[case[0] for case in CALLS],
)
def test_bad_input_is_one_clear_error_and_out_is_untouched(
    operands: tuple[Any, Any],
    options: dict[str, Any],
    error: type[TilewrightError],
    words: list[str],
    function: Callable[..., Any],
) -> None:
    given = options.get("out")
    target = given if isinstance(given, np.ndarray) else out(4, 3)
    before = target.tobytes()
    with pytest.raises(error) as caught:
        function(*operands, **{"device": "opencl", **options})
    assert type(caught.value) is error
    assert [word for word in words if word not in str(caught.value)] == []
    assert target.tobytes() == before


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: tilewright.empty(-1), ShapeError, ["shape=-1", "from 0 up"]),
        (lambda: tilewright.empty((2, -3)), ShapeError, ["shape=(2, -3)", "from 0 up"]),
        (lambda: tilewright.empty((2.0, 3)), ShapeError, ["shape=(2.0, 3)", "whole"]),
        (lambda: tilewright.empty(2.5), ShapeError, ["shape=2.5", "whole"]),
        (lambda: tilewright.empty(None), ShapeError, ["shape=None", "whole"]),  # type: ignore[arg-type]
        (lambda: tilewright.empty(3, "int8"), DtypeError, ["dtype='int8'", "float32"]),
        (lambda: tilewright.empty(3, "nonsense"), DtypeError, ["dtype='nonsense'", "float32"]),
        (lambda: tilewright.empty(3, memory="mine"), ArgumentError, ["memory='mine'", "'use'"]),
        (lambda: tilewright.empty(3, device="gone"), DeviceError, ["device='gone'", "'host'"]),
        (lambda: tilewright.empty(1 << 60), DeviceMemoryError, [str(4 << 60), "bytes"]),
        (
            lambda: tilewright.empty(1 << 60, device="host"),
            DeviceMemoryError,
            [str(4 << 60), "bytes"],
        ),
        (lambda: tilewright.asarray([1, 2]), DtypeError, ["value.dtype='int64'", "float32"]),
        (lambda: tilewright.asarray("text", "float32"), OperandError, ["value='text'"]),
        (lambda: tilewright.asarray([[1.0], [1.0, 2.0]]), OperandError, ["value=[[1.0], [1.0"]),
        (
            lambda: tilewright.asarray(A.T, memory="use"),
            OperandError,
            ["memory='use'", "C-ordered"],
        ),
        (
            lambda: tilewright.asarray(read_only(), memory="use"),
            OperandError,
            ["memory='use'", "read-only"],
        ),
    ],
)
@pytest.mark.usefixtures("opencl_device")
def test_bad_arrays_are_one_clear_error(
    call: Callable[[], Any], error: type[TilewrightError], words: list[str]
) -> None:
    with pytest.raises(error) as caught:
        call()
    assert [word for word in words if word not in str(caught.value)] == []


def test_arrays_of_two_devices_or_kinds_do_not_mix(intel: Device, pocl: Device) -> None:
    here, there = (tilewright.asarray(np.eye(4), device=device) for device in (intel, pocl))
    with pytest.raises(OperandError, match=r"b=.*another device"):
        tilewright.matmul(here, there)
    with pytest.raises(OperandError, match=r"out=.*another device"):
        tilewright.matmul(here, here, out=there)
    with pytest.raises(OperandError, match=r"b=ndarray.*another kind"):
        tilewright.matmul(here, np.eye(4))
    with pytest.raises(OperandError, match=r"device='host'.*opencl"):
        tilewright.matmul(here, here, device="host")


def test_a_device_array_is_no_out_for_itself(opencl_device: Device) -> None:
    held = tilewright.asarray(np.eye(4), device=opencl_device)
    with pytest.raises(OverlapError, match="memory with a"):
        tilewright.matmul(held, held, out=held)
    np.testing.assert_array_equal(held, np.eye(4))


def test_a_dtype_that_the_device_lacks_is_refused_on_device_arrays(pocl: Device) -> None:
    held = tilewright.asarray(np.eye(4, dtype=np.float16), device=pocl)
    with pytest.raises(KernelError, match="no float16"):
        tilewright.matmul(held, held)


def test_pyopencl_arrays_need_a_queue_that_runs_in_order(opencl_device: Device) -> None:
    import pyopencl.array as cl_array

    cl = runtime.pyopencl()
    session = runtime.session(opencl_device)
    loose = cl_array.to_device(session.queue, A).with_queue(None)
    with pytest.raises(OperandError, match=r"a\.queue=None"):
        tilewright.matmul(loose, loose, transpose_b=True)
    unordered = cl.CommandQueue(
        session.context, properties=cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    )
    array = cl_array.to_device(unordered, A)
    with pytest.raises(OperandError, match="out of order"):
        tilewright.matmul(array, array, transpose_b=True)


# Too little memory.


@pytest.mark.parametrize("kernel", ["coalesced", "image_b", "panel"])
def test_scratch_beyond_the_device_is_a_memory_error(kernel: str, device: Device) -> None:
    small = replace(device, max_allocation=1000)
    target = out(65, 67)
    a, b = np.ones((65, 63), np.float32), np.ones((63, 67), np.float32)
    with pytest.raises(DeviceMemoryError, match=r"1000.*device='host' or a smaller product"):
        tilewright.matmul(a, b, out=target, device=small, kernel=kernel)
    assert (target == 7).all()
    assert (tilewright.matmul(a, b, device=device, kernel=kernel) == 63).all()


def test_operands_beyond_the_device_are_a_memory_error(device: Device) -> None:
    apart = replace(device, max_allocation=1000, features=frozenset())
    target = out(65, 67)
    a, b = np.ones((65, 63), np.float32), np.ones((63, 67), np.float32)
    with pytest.raises(DeviceMemoryError, match=f"{a.nbytes} bytes"):
        tilewright.matmul(a, b, out=target, device=apart, kernel="naive")
    assert (target == 7).all()


# The cache: damaged files are set aside with a warning, a folder that was asked for must work.


def fresh(device: Device, name: str) -> Device:
    """The same device under a driver of its own name, so that nothing of it is cached yet."""
    return replace(device, driver=f"{device.driver} {name}")


def need_kept_programs(device: Device) -> None:
    """Skip where the driver keeps programs itself, and nothing here does."""
    if device.platform in KEEPS_PROGRAMS:
        pytest.skip("its driver keeps programs itself")


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-10]),
        lambda path: path.write_bytes(b"garbage"),
        lambda path: path.write_bytes(b""),
    ],
    ids=["truncated", "garbage", "empty"],
)
def test_a_damaged_program_is_compiled_again_with_a_warning(
    damage: Callable[[Path], Any],
    device: Device,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    need_kept_programs(device)
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    same = fresh(device, str(tmp_path))
    tilewright.matmul(A, B, device=same, kernel="naive")
    runtime._open.cache_clear()  # as another process would: nothing is compiled in memory
    (path,) = (tmp_path / "programs").iterdir()
    damage(path)
    with pytest.warns(CacheWarning, match=f"{path.name}.*set aside"):
        result = tilewright.matmul(A, B, device=same, kernel="naive")
    assert (result == 5).all()
    assert path.with_suffix(".damaged").exists()
    runtime._open.cache_clear()
    tilewright.matmul(A, B, device=same, kernel="naive")  # a warning would be an error


def test_a_program_that_the_driver_refuses_is_compiled_again_with_a_warning(
    device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_kept_programs(device)
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    same = fresh(device, str(tmp_path))
    tilewright.matmul(A, B, device=same, kernel="naive")
    runtime._open.cache_clear()
    (path,) = (tmp_path / "programs").iterdir()
    binary = b"of another driver"
    cache.write_sealed(path, program._MAGIC, binary)
    with pytest.warns(CacheWarning, match="refused it; set aside"):
        result = tilewright.matmul(A, B, device=same, kernel="naive")
    assert (result == 5).all()


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "[]",
        lambda text: "\x00\xff",
        lambda text: text.replace(store.FORMAT, "tilewright-measurements-0"),
    ],
    ids=["cut in half", "of another kind", "garbage", "of another format"],
)
def test_a_damaged_measurement_is_set_aside_with_a_warning(
    damage: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    store.save("key", {"answer": 42})
    assert store.load("key") == {"answer": 42}
    (path,) = (tmp_path / "measured").iterdir()
    path.write_text(damage(path.read_text(encoding="utf-8")), encoding="latin-1")
    with pytest.warns(CacheWarning, match=f"{path.name}.*set aside"):
        assert store.load("key") == {}
    assert path.with_suffix(".damaged").exists()
    store.save("key", {"answer": 43})
    assert store.load("key") == {"answer": 43}


MEASURED = Measured(Curve(((1e6, 1e-3),)), (("panel", Curve(((1e6, 2e-3),))),), 1e10, None)
WHOLE = curves.to_json(MEASURED)


def stored_measurement(
    content: Any, device: Device, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Measured | None:
    """What is made of a stored measurement; None where it is measured anew."""
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(folder))
    backend = backends()["opencl"]
    priors = backend.priors(device)
    unknown = fresh(device, f"{folder}")
    store.save(crossover._key(unknown, priors), {"float32": content})
    return crossover.known(unknown, backend, "float32", priors)


def test_a_measurement_is_read_back(
    opencl_device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stored_measurement(WHOLE, opencl_device, tmp_path, monkeypatch) == MEASURED


@pytest.mark.parametrize(
    "content",
    [
        None,
        [],
        {},
        {"host": WHOLE["host"]},
        {**WHOLE, "host": 1},
        {**WHOLE, "host": []},
        {**WHOLE, "host": [[0, 0]]},
        {**WHOLE, "host": [["many", "few"]]},
        {**WHOLE, "host": [[2e6, 1e-3], [1e6, 1e-3]]},
        {**WHOLE, "curves": []},
        {**WHOLE, "curves": {"panel": [[1e6, float("nan")]]}},
        {**WHOLE, "bandwidth": 0},
        {**WHOLE, "transfer": -1},
    ],
    ids=str,
)
def test_a_measurement_that_makes_no_sense_is_measured_again(
    content: Any, opencl_device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stored_measurement(content, opencl_device, tmp_path, monkeypatch) is None


def test_files_where_the_cache_wants_folders_cost_a_warning(
    device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_kept_programs(device)
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    for name in ("programs", "measured"):
        (tmp_path / name).touch()
    with pytest.warns(CacheWarning, match="cannot be written"):
        result = tilewright.matmul(A, B, device=fresh(device, str(tmp_path)), kernel="naive")
    assert (result == 5).all()
    with pytest.warns(CacheWarning, match="cannot be written"):
        store.save("key", {})


def test_a_file_that_cannot_be_written_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.warns(CacheWarning, match="No space left on device"):
        cache.write(tmp_path / "content", b"content")
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_file_that_another_process_set_aside_first_is_no_error(tmp_path: Path) -> None:
    with pytest.warns(CacheWarning, match="set aside"):
        cache.set_aside(tmp_path / "gone", "it is damaged")


def test_a_folder_below_a_file_is_a_cache_error(
    device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        monkeypatch.setenv("TILEWRIGHT_CACHE", str(folder))
        target = out(4, 3)
        with pytest.raises(CacheError) as caught:
            tilewright.matmul(A, B, out=target, device=fresh(device, str(folder)), kernel="naive")
        assert f"TILEWRIGHT_CACHE={str(folder)!r}" in str(caught.value)
        assert "'off'" in str(caught.value)
        assert (target == 7).all()


def test_a_process_with_an_unusable_folder_ends_in_one_cache_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    script = (
        "import tilewright\n"
        "try: tilewright.devices()\n"
        "except tilewright.errors.CacheError: print('clear')"
    )
    found = ("PYTHONPATH", "LD_LIBRARY_PATH")  # without which a process may have no packages
    environment = {name: os.environ[name] for name in found if name in os.environ}
    environment["TILEWRIGHT_CACHE"] = str(tmp_path / "file")
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout == "clear\n", done.stderr


def test_no_cache_at_all_still_computes(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", "off")
    assert settings.cache_folder() is None
    result = tilewright.matmul(A, B, device=fresh(device, "uncached"), kernel="naive")
    assert (result == 5).all()


def test_a_default_folder_that_cannot_be_used_warns_once_and_computes(
    device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.delenv("TILEWRIGHT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.warns(CacheWarning, match="cannot be made.*TILEWRIGHT_CACHE"):
        result = tilewright.matmul(A, B, device=fresh(device, str(tmp_path)), kernel="naive")
    assert (result == 5).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tilewright.matmul(A, B, device=fresh(device, str(tmp_path)), kernel="dot4")
