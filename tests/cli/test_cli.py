"""The command line through its real entry point, and files that others wrote."""

from __future__ import annotations

import contextlib
import json
import pickle
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse
from typer.testing import CliRunner, Result

import tilewright
from tilewright.cli import app, files
from tilewright.cli import devices as devices_command
from tilewright.inputs.devices import INSTALL_HINT, host


def tilewright_command(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tilewright", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


class _Runner(CliRunner):
    """Typer's, which says where a command put another object in the place of `sys.stdout`.

    The runner's own stream would be closed then, and only that be told.
    """

    @contextlib.contextmanager
    def isolation(self, *arguments: Any, **options: Any) -> Iterator[Any]:
        with super().isolation(*arguments, **options) as streams:
            stdout = sys.stdout
            try:
                yield streams
            finally:
                assert sys.stdout is stdout, f"{threading.enumerate()} made it {sys.stdout!r}"


def invoke(*arguments: object) -> Result:
    return _Runner().invoke(app, [str(argument) for argument in arguments])


def check_error(done: Result, *said: str) -> None:
    """One line, exit status 2, every word of `said` in it."""
    assert done.exit_code == 2
    assert done.stdout == ""
    assert [line[:7] for line in done.stderr.splitlines() if line[:5] != "note:"] == ["error: "]
    for word in said:
        assert word in done.stderr


@pytest.fixture
def a() -> Any:
    return np.random.default_rng(1).standard_normal((30, 20)).astype(np.float32)


@pytest.fixture
def b() -> Any:
    return np.random.default_rng(2).standard_normal((20, 10)).astype(np.float32)


@pytest.fixture
def folder(tmp_path: Path, a: Any, b: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a.npy and b.npy in it."""
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", b)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_the_version_is_printed() -> None:
    assert invoke("--version").stdout == f"tilewright {tilewright.__version__}\n"


def test_help_lists_every_command_and_each_has_examples() -> None:
    listed = invoke("--help").stdout
    for name in ("devices", "ladder", "matmul", "demo"):
        assert name in listed
        assert f"tilewright {name}" in invoke(name, "--help").stdout


def test_importing_the_library_imports_nothing_of_the_command_line() -> None:
    code = (
        "import sys, tilewright; print([name for name in"
        " ('typer', 'rich', 'matplotlib', 'scipy', 'torch', 'pyopencl', 'tilewright.report')"
        " if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_command_line_starts_without_matplotlib_scipy_and_torch() -> None:
    code = (
        "import sys, tilewright.cli; print([name for name in"
        " ('matplotlib', 'scipy', 'torch', 'pyopencl') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_devices_as_json_are_the_records_of_the_library() -> None:
    # In this process: a driver may report other memory to another one.
    done = invoke("devices", "--json")
    assert done.exit_code == 0, done.stderr
    records = json.loads(json.dumps([device.as_dict() for device in tilewright.devices()]))
    assert json.loads(done.stdout) == records


@pytest.mark.parametrize("alone", [True, False])
def test_a_ladder_of_the_host_says_how_to_get_a_device_only_where_there_is_none(
    monkeypatch: pytest.MonkeyPatch, alone: bool
) -> None:
    other = replace(host(), id="opencl:0", backend="opencl")
    there = (host(),) if alone else (other, host())
    monkeypatch.setattr("tilewright.cli.ladder.devices", lambda: there)
    done = invoke("ladder", "--size", "16", "--device", "host")
    assert done.exit_code == 0, done.stderr
    assert (INSTALL_HINT in done.stdout) is alone


def test_devices_are_shown_within_eighty_columns() -> None:
    done = tilewright_command("devices")
    assert done.returncode == 0, done.stderr
    shown = " ".join(word for line in done.stdout.splitlines() for word in line.strip("│").split())
    for device in tilewright.devices():
        assert device.id in shown
        assert device.driver in shown  # over two lines, where it is long
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_with_only_the_host_devices_names_the_pip_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(devices_command, "all_devices", lambda: (host(),))
    assert INSTALL_HINT in invoke("devices").stdout


def test_an_unknown_device_is_one_line_and_status_two_in_a_real_process(folder: Path) -> None:
    done = tilewright_command("matmul", "a.npy", "b.npy", "-o", "c.npy", "--device", "opencl:77")
    assert done.returncode == 2
    assert done.stderr.startswith("error: device='opencl:77'")
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert names(folder) == {"a.npy", "b.npy"}


def test_two_files_are_multiplied_in_a_real_process(folder: Path, a: Any, b: Any) -> None:
    done = tilewright_command("matmul", "a.npy", "b.npy", "-o", "c.npy")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "wrote c.npy: 30 × 10, float32\n"
    np.testing.assert_allclose(np.load("c.npy"), a @ b, rtol=1e-5, atol=1e-5)


def test_alpha_transposes_and_a_forced_kernel_reach_the_product(
    folder: Path, a: Any, b: Any, opencl_device: tilewright.Device
) -> None:
    np.save("at.npy", np.asfortranarray(a.T))
    np.save("bt.npy", b.T.copy())
    options = ("--transpose-a", "--transpose-b", "--alpha", "-2.5", "--kernel", "naive")
    done = invoke(
        "matmul", "at.npy", "bt.npy", "-o", "c.npy", "-d", opencl_device.id, *options, "--explain"
    )
    assert done.exit_code == 0, done.stderr
    assert "engine     naive" in done.stdout
    np.testing.assert_allclose(np.load("c.npy"), -2.5 * (a @ b), rtol=1e-4, atol=1e-4)


def test_explain_alone_computes_nothing(folder: Path) -> None:
    done = invoke("matmul", "a.npy", "b.npy", "--explain")
    assert done.exit_code == 0
    assert "C[30 x 10] = A[30 x 20] @ B[20 x 10]" in done.stdout
    assert names(folder) == {"a.npy", "b.npy"}


def test_an_npy_file_is_memory_mapped_and_not_read(folder: Path) -> None:
    assert isinstance(files.load("a.npy", "A", print), np.memmap)


def test_arrays_in_archives_are_named_after_a_colon(folder: Path, a: Any, b: Any) -> None:
    np.savez("both.npz", left=a, right=b)
    np.savez_compressed("one.npz", b)
    for right in ("both.npz:right", "one.npz"):
        assert invoke("matmul", "both.npz:left", right, "-o", "c.npz").exit_code == 0
        np.testing.assert_allclose(np.load("c.npz")["c"], a @ b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("sparse", [False, True])
def test_matrix_market_files_go_in_and_out_exactly(folder: Path, sparse: bool) -> None:
    left = np.random.default_rng(3).standard_normal((6, 5))
    left[left < 0] = 0
    scipy.io.mmwrite("left.mtx", scipy.sparse.coo_array(left) if sparse else left, precision=17)
    scipy.io.mmwrite("unit.mtx", np.eye(5))
    assert invoke("matmul", "left.mtx", "unit.mtx", "-o", "c.mtx").exit_code == 0
    assert np.array_equal(scipy.io.mmread("c.mtx"), left)


MARKET_KINDS = [
    (field, symmetry, sparse)
    for field in ("real", "integer", "pattern")
    for symmetry in ("general", "symmetric", "skew-symmetric")
    for sparse in (False, True)
    if field != "pattern" or (sparse and symmetry != "skew-symmetric")
]


@pytest.mark.parametrize(("field", "symmetry", "sparse"), MARKET_KINDS)
def test_every_kind_of_matrix_market_file_reads_as_scipy_wrote_it(
    tmp_path: Path, field: str, symmetry: str, sparse: bool
) -> None:
    full = np.random.default_rng(4).integers(-3, 4, (7, 7)).astype(float)
    full = {"general": full, "symmetric": full + full.T, "skew-symmetric": full - full.T}[symmetry]
    full = (full != 0).astype(float) if field == "pattern" else full
    content = scipy.sparse.coo_array(full) if sparse else full
    scipy.io.mmwrite(tmp_path / "a.mtx", content, "a comment", field=field, symmetry=symmetry)
    assert np.array_equal(files.load(str(tmp_path / "a.mtx"), "A", print), full)


def test_entries_that_are_stored_twice_add_up(tmp_path: Path) -> None:
    head = "%%MatrixMarket matrix coordinate real general\n% twice\n\n2 3 3\n"
    (tmp_path / "a.mtx").write_text(f"{head}1 2 1.5\n2 3 4\n1 2 1\n")
    array = files.load(str(tmp_path / "a.mtx"), "A", print)
    assert array.tolist() == [[0, 2.5, 0], [0, 0, 4]]


def test_integers_in_matrix_market_become_float64_with_a_note(folder: Path) -> None:
    left = np.arange(12).reshape(4, 3)
    scipy.io.mmwrite("left.mtx", scipy.sparse.coo_array(left))
    done = invoke("matmul", "left.mtx", "left.mtx", "--transpose-b", "-o", "c.npy")
    assert done.exit_code == 0
    assert "note: A='left.mtx': integers, converted to float64" in done.stderr
    assert np.load("c.npy").dtype == np.float64
    assert np.array_equal(np.load("c.npy"), left @ left.T)


def test_half_precision_can_be_written_as_matrix_market(folder: Path, a: Any, b: Any) -> None:
    np.save("a16.npy", a.astype(np.float16))
    np.save("b16.npy", b.astype(np.float16))
    assert invoke("matmul", "a16.npy", "b16.npy", "-o", "c.mtx").exit_code == 0
    np.testing.assert_allclose(scipy.io.mmread("c.mtx"), a @ b, rtol=1e-2, atol=2e-2)


def test_foreign_byte_order_is_converted_with_a_note(folder: Path, a: Any, b: Any) -> None:
    np.save("foreign.npy", a.astype(a.dtype.newbyteorder()))
    done = invoke("matmul", "foreign.npy", "b.npy", "-o", "c.npy")
    assert done.exit_code == 0
    assert "byte order" in done.stderr
    np.testing.assert_allclose(np.load("c.npy"), a @ b, rtol=1e-5, atol=1e-5)


def test_batches_and_vectors_and_empty_matrices_multiply_as_numpys_do(
    folder: Path, a: Any, b: Any
) -> None:
    cases = {
        "batch": (np.stack([a, 2 * a]), b),
        "vector": (a, b[:, 0].copy()),
        "empty": (a[:0], b),
        "nothing": (np.zeros((4, 0), np.float32), np.zeros((0, 3), np.float32)),
    }
    for name, (left, right) in cases.items():
        np.save("left.npy", left)
        np.save("right.npy", right)
        assert invoke("matmul", "left.npy", "right.npy", "-o", f"{name}.npy").exit_code == 0
        product = np.load(f"{name}.npy")
        assert product.shape == (left @ right).shape
        np.testing.assert_allclose(product, left @ right, rtol=1e-5, atol=1e-5)


def test_the_result_may_replace_an_operand_where_that_is_said(folder: Path, a: Any, b: Any) -> None:
    assert invoke("matmul", "a.npy", "b.npy", "-o", "a.npy", "--force").exit_code == 0
    np.testing.assert_allclose(np.load("a.npy"), a @ b, rtol=1e-5, atol=1e-5)


def write_text(content: str) -> Callable[[Path, Any], None]:
    return lambda path, a: path.write_text(content) and None


def write_truncated(path: Path, a: Any) -> None:
    np.save(path, a)
    path.write_bytes(path.read_bytes()[:-5])


def write_headless(path: Path, a: Any) -> None:
    np.save(path, a)
    path.write_bytes(path.read_bytes()[:40])


def write_open_header(path: Path, a: Any) -> None:
    path.write_bytes(b"\x93NUMPY\x01\0\x09\0{'descr':")


def write_truncated_archive(path: Path, a: Any) -> None:
    np.savez(path, a=a)
    path.write_bytes(path.read_bytes()[:-60])


def write_damaged_archive(path: Path, a: Any) -> None:
    np.savez(path, a=a)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


def write_lying_header(path: Path, a: Any) -> None:
    """An array that claims to hold more than any memory, in an archive."""
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999, 99999999)}"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)


def write_truncated_market(path: Path, a: Any) -> None:
    scipy.io.mmwrite(path, a)
    path.write_text(
        "".join(path.read_text(encoding="utf-8").splitlines(keepends=True)[:-1]), encoding="utf-8"
    )


def market_text(kind: str, body: str) -> Callable[[Path, Any], None]:
    return write_text(f"%%MatrixMarket matrix {kind}\n{body}\n")


BAD_FILES: tuple[tuple[str, Callable[[Path, Any], Any], str], ...] = (
    ("truncated.npy", write_truncated, "cannot be read as .npy"),
    ("headless.npy", write_headless, "cannot be read as .npy"),
    ("empty.npy", write_text(""), "cannot be read as .npy"),
    ("text.npy", write_text("1 2 3"), "cannot be read as .npy"),
    ("open.npy", write_open_header, "cannot be read as .npy"),
    ("object.npy", lambda p, a: np.save(p, np.array([[None, 1]])), "accepted is a whole file"),
    ("integer.npy", lambda p, a: np.save(p, np.arange(6).reshape(2, 3)), "holds int64"),
    ("complex.npy", lambda p, a: np.save(p, a.astype(complex)), "holds complex128"),
    ("records.npy", lambda p, a: np.save(p, np.zeros(3, "f4,f4")), "accepted are float16"),
    ("scalar.npy", lambda p, a: np.save(p, np.float32(3)), "holds one number"),
    ("folder.npy", lambda p, a: p.mkdir(), "a folder; accepted are"),
    ("missing.npy", lambda p, a: None, "no such file"),
    ("table.csv", write_text("1,2"), "suffix '.csv'"),
    ("two.npz", lambda p, a: np.savez(p, x=a, y=a), "'two.npz:x', 'two.npz:y'"),
    ("none.npz", lambda p, a: np.savez(p), "it is empty"),
    ("truncated.npz", write_truncated_archive, "is no archive"),
    ("damaged.npz", write_damaged_archive, "cannot be read as .npz"),
    ("lying.npz", write_lying_header, "cannot be read as .npz"),
    ("plain.npz", write_text("hello"), "is no archive"),
    ("truncated.mtx", write_truncated_market, "cannot be read as .mtx"),
    ("text.mtx", write_text("hello"), "cannot be read as .mtx"),
    (
        "complex.mtx",
        lambda p, a: scipy.io.mmwrite(p, a.astype(complex)),
        "its field is 'complex'; accepted are real",
    ),
    ("huge.mtx", market_text("coordinate real general", "9999999 9999999 0"), "made dense"),
    ("long.mtx", market_text("array real general", "2 1\n1\n2\n3"), "more than the 2 entries"),
    # The next two crash SciPy 1.17, the interpreter with it.
    ("cut.mtx", market_text("array real general", "2 1\n1\n3.3155594E-"), "'3.3155594E-'"),
    ("oblong.mtx", market_text("array real symmetric", "2 4\n" + "1\n" * 10), "is not square"),
    ("outside.mtx", market_text("coordinate real general", "2 2 1\n3 1 1"), "outside 1 to 2"),
    ("zero.mtx", market_text("coordinate real general", "2 2 1\n1 0 1"), "outside 1 to 2"),
    ("negative.mtx", market_text("array real general", "-2 -2\n1"), "line of sizes"),
    ("sizes.mtx", market_text("array real general", "two 2"), "cannot be read as .mtx"),
    ("sizeless.mtx", market_text("array real general", ""), "line of sizes"),
    ("form.mtx", market_text("list real general", "1 1"), "its format is 'list'"),
    ("claim.mtx", market_text("coordinate real general", "9 9 99999999999999"), "cannot be read"),
)


@pytest.mark.parametrize(("name", "write", "said"), BAD_FILES, ids=[bad[0] for bad in BAD_FILES])
def test_a_bad_file_is_named_with_what_would_be_accepted(
    folder: Path, a: Any, name: str, write: Callable[[Path, Any], Any], said: str
) -> None:
    write(folder / name, a)
    before = names(folder)
    check_error(invoke("matmul", name, "b.npy", "-o", "c.npy"), f"A='{name}", said, "accepted")
    check_error(invoke("matmul", "a.npy", name, "-o", "c.npy"), f"B='{name}", said)
    assert names(folder) == before


def test_an_array_that_an_archive_lacks_is_named_with_those_it_has(folder: Path, a: Any) -> None:
    np.savez("both.npz", left=a)
    done = invoke("matmul", "both.npz:right", "b.npy", "-o", "c.npy")
    check_error(done, "both.npz:right", "'both.npz:left'")


class Trap:
    """Writes a file when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("sprung"),))


@pytest.mark.parametrize("name", ["trap.npy", "trap.npz"])
def test_nothing_is_ever_unpickled(folder: Path, name: str) -> None:
    trapped = np.array([[Trap()]], dtype=object)
    if name.endswith("npz"):
        np.savez(name, trapped)
    else:
        np.save(name, trapped)
    check_error(invoke("matmul", name, "b.npy", "-o", "c.npy"), name)
    Path(name).write_bytes(pickle.dumps(Trap()))
    check_error(invoke("matmul", name, "b.npy", "-o", "c.npy"), name)
    assert "sprung" not in names(folder)
    pickle.loads(pickle.dumps(Trap()))
    assert "sprung" in names(folder)  # the trap does work


def test_shapes_that_do_not_fit_name_both_files(folder: Path) -> None:
    done = invoke("matmul", "a.npy", "a.npy", "-o", "c.npy")
    check_error(done, "b.shape=(30, 20)", "A='a.npy'", "B='a.npy'")


def test_dtypes_that_differ_name_both_files(folder: Path, b: Any) -> None:
    np.save("wide.npy", b.astype(np.float64))
    done = invoke("matmul", "a.npy", "wide.npy", "-o", "c.npy")
    check_error(done, "b.dtype='float64'", "B='wide.npy'")


@pytest.mark.parametrize("output", ["c.csv", "c", "absent/c.npy", "taken.npy"])
def test_an_output_that_cannot_be_written_is_refused_by_name(folder: Path, output: str) -> None:
    (folder / "taken.npy").mkdir()
    check_error(
        invoke("matmul", "a.npy", "b.npy", "-o", output), f"--output='{output}'", "accepted"
    )
    assert names(folder) == {"a.npy", "b.npy", "taken.npy"}


def test_a_product_without_an_output_is_refused(folder: Path) -> None:
    check_error(invoke("matmul", "a.npy", "b.npy"), "-o is missing: name a file for C", "--explain")


def test_a_failed_product_leaves_the_old_output_and_nothing_else(folder: Path, a: Any) -> None:
    Path("c.mtx").write_text("before", encoding="utf-8")
    np.save("batch.npy", np.stack([a, a]))
    done = invoke("matmul", "batch.npy", "b.npy", "-o", "c.mtx")
    check_error(done, "--output='c.mtx'", "3 dimensions", "accepted are .npy and .npz")
    assert Path("c.mtx").read_text(encoding="utf-8") == "before"
    assert names(folder) == {"a.npy", "b.npy", "batch.npy", "c.mtx"}


def test_a_kernel_that_is_unknown_is_refused_with_those_there_are(
    folder: Path, opencl_device: tilewright.Device
) -> None:
    options = ("-d", opencl_device.id, "--kernel", "nope")
    done = invoke("matmul", "a.npy", "b.npy", "-o", "c.npy", *options)
    check_error(done, "kernel='nope'", "'naive'")
    assert names(folder) == {"a.npy", "b.npy"}


def test_running_out_of_memory_is_one_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*_: Any, **__: Any) -> Any:
        raise MemoryError("cannot allocate 9 TiB")

    monkeypatch.setattr(tilewright.products.dense, "matmul", exhausted)
    done = invoke("matmul", "a.npy", "b.npy", "-o", "c.npy")
    check_error(done, "out of memory", "9 TiB")
    assert names(folder) == {"a.npy", "b.npy"}
