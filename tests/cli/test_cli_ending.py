"""Commands that do not end well: one line, a status, files as they were, and nothing half done."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import tilewright
from tilewright.cli import app
from tilewright.errors import FileError
from tilewright.files import whole

COMMAND = (sys.executable, "-m", "tilewright")


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a.npy, b.npy and a both.npz in it."""
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", np.ones((3, 4), np.float32))
    np.save("b.npy", np.ones((4, 2), np.float32))
    np.savez("both.npz", a=np.ones((3, 4), np.float32))
    return tmp_path


# Modes of what is replaced, and what is no file.


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o755])
def test_a_file_that_is_replaced_keeps_its_mode(mode: int, folder: Path) -> None:
    Path("c.npy").touch()
    Path("c.npy").chmod(mode)
    assert invoke("matmul", "a.npy", "b.npy", "-o", "c.npy").exit_code == 0
    assert stat.S_IMODE(Path("c.npy").stat().st_mode) == mode
    assert np.load("c.npy").shape == (3, 2)


def test_a_new_file_has_the_mode_of_the_umask(folder: Path) -> None:
    before = os.umask(0o027)
    try:
        assert invoke("matmul", "a.npy", "b.npy", "-o", "c.npy").exit_code == 0
    finally:
        os.umask(before)
    assert stat.S_IMODE(Path("c.npy").stat().st_mode) == 0o640


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes others' files")
def test_a_file_that_is_replaced_keeps_its_owner(folder: Path) -> None:
    Path("c.npy").touch()
    os.chown("c.npy", 12345, 12346)
    assert invoke("matmul", "a.npy", "b.npy", "-o", "c.npy").exit_code == 0
    assert (Path("c.npy").stat().st_uid, Path("c.npy").stat().st_gid) == (12345, 12346)


def test_a_link_leads_to_the_file_that_is_replaced(folder: Path) -> None:
    Path("real.npy").touch(mode=0o600)
    Path("c.npy").symlink_to("real.npy")
    assert invoke("matmul", "a.npy", "b.npy", "-o", "c.npy").exit_code == 0
    assert Path("c.npy").is_symlink()
    assert np.load("real.npy").shape == (3, 2)


def test_what_is_no_file_is_written_to_and_stays_what_it_is(folder: Path) -> None:
    os.mkfifo("pipe")
    reader = subprocess.Popen(["cat", "pipe"], stdout=subprocess.PIPE, text=True)
    with whole.replacing(Path("pipe"), "FILE") as temporary:
        temporary.write_text("whole")
    assert reader.communicate()[0] == "whole"
    assert stat.S_ISFIFO(Path("pipe").stat().st_mode)


def test_a_device_that_is_full_is_one_error_and_stays() -> None:
    if not Path("/dev/full").is_char_device():
        pytest.skip("no /dev/full")
    with (
        pytest.raises(FileError, match="No space left"),
        whole.replacing(Path("/dev/full"), "FILE") as temporary,
    ):
        temporary.write_text("whole")
    assert Path("/dev/full").is_char_device()


# An input is not replaced unless that is said.


@pytest.mark.parametrize("name", ["a.npy", "./a.npy", "linked.npy", "hard.npy", "b.npy"])
def test_an_output_that_is_an_input_is_refused(name: str, folder: Path) -> None:
    Path("linked.npy").symlink_to("a.npy")
    os.link("a.npy", "hard.npy")
    before = Path("a.npy").read_bytes(), Path("b.npy").read_bytes()
    done = invoke("matmul", "a.npy", "b.npy", "-o", name)
    assert done.exit_code == 2
    assert f"--output={str(Path(name))!r}" in done.stderr
    assert "--force" in done.stderr
    assert (Path("a.npy").read_bytes(), Path("b.npy").read_bytes()) == before
    assert invoke("matmul", "a.npy", "b.npy", "-o", name, "--force").exit_code == 0


def test_an_archive_that_an_operand_lies_in_is_an_input(folder: Path) -> None:
    done = invoke("matmul", "both.npz:a", "b.npy", "-o", "both.npz")
    assert (done.exit_code, "would be lost" in done.stderr) == (2, True)


# What cannot be written is known before anything is measured.


@pytest.mark.parametrize("option", ["--plot", "--json"])
@pytest.mark.parametrize(
    "command",
    [
        ("ladder",),
        ("peak",),
        ("roofline",),
        ("grouped", "--uniform", "1", "9"),
        ("onebit", "bench"),
    ],
    ids=lambda command: command[0],
)
def test_a_folder_that_is_not_there_is_known_before_measuring(
    command: tuple[str, ...], option: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if command[0] == "onebit" and option == "--plot":
        pytest.skip("draws nothing")

    def measured(*_: Any, **__: Any) -> Any:
        raise AssertionError("measured before the file was looked at")

    for name in ("cli.climbing.measure", "cli.grouped.measure", "report.grouped.measure"):
        monkeypatch.setattr(f"tilewright.{name}", measured)
    monkeypatch.setattr("tilewright.report.onebit_bench.measure", measured)
    monkeypatch.setattr("tilewright.tuning.peak.measure", measured)
    path = tmp_path / "nope" / "x.svg"
    done = invoke(*command, option, path, "--device", "host")
    assert done.exit_code == 2, done.exception
    assert done.stderr.startswith(f"error: {option}={str(path)!r}: cannot be written")


def test_looking_whether_a_file_can_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("before")
    whole.check_writable(tmp_path / "there", "--json")
    whole.check_writable(tmp_path / "new", "--json")
    whole.check_writable(None, "--json")
    assert [(path.name, path.read_text(encoding="utf-8")) for path in tmp_path.iterdir()] == [
        ("there", "before")
    ]


# Standard output that is full or closed.


@pytest.mark.parametrize(
    "command",
    [("--version",), ("cache", "info"), ("matmul", "--help")],
    ids=" ".join,
)
def test_a_full_standard_output_is_one_line(command: tuple[str, ...]) -> None:
    if not Path("/dev/full").is_char_device():
        pytest.skip("no /dev/full")
    for buffered in ("", "1"):
        environment = {**os.environ, "PYTHONUNBUFFERED": buffered}
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run(
                [*COMMAND, *command],
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
                env=environment,
            )
        assert done.returncode == 2
        (line,) = done.stderr.splitlines()
        assert line.startswith("error: standard output: cannot be written")


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    done = subprocess.run(
        f"{sys.executable} -m tilewright devices --json | head -c 1",
        shell=True,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("[", "")


# Signals.


def started(*command: str, code: str | None = None) -> subprocess.Popen[str]:
    arguments = [*COMMAND, *command] if code is None else [sys.executable, "-c", code]
    return subprocess.Popen(arguments, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def wait_for(folder: Path, process: subprocess.Popen[str]) -> None:
    """Until the result's temporary file is there."""
    while not list(folder.glob(".tilewright-*")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)


# A command that multiplies for ever: in Python, or within one call that no signal ends.
_LONG = """
import ctypes, threading, time, tilewright.products.dense
from tilewright.cli import app
def for_ever(*_, **__):
    {forever}
tilewright.products.dense.matmul = for_ever
app(["matmul", "a.npy", "b.npy", "-o", "c.npy"])
"""
# A suite that `nohup` or a shell's `&` started ignores these, and so would what it starts.
_AS_IN_A_TERMINAL = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
"""
IN_PYTHON = "while True: time.sleep(0.01)"
# A call into C that goes on after a signal, as a driver's does.
IN_C = """
    libc, lock = ctypes.CDLL(None), ctypes.create_string_buffer(128)
    libc.pthread_mutex_init(lock, None)
    libc.pthread_mutex_lock(lock)
    libc.pthread_mutex_lock(lock)
"""


@pytest.mark.parametrize(
    ("number", "where"),
    [(2, IN_C), (15, IN_C), (15, IN_PYTHON), (1, IN_PYTHON)],
    ids=["Ctrl-C in one long call", "SIGTERM in one long call", "SIGTERM", "a closed terminal"],
)
def test_a_signal_ends_a_command_and_leaves_no_temporary_file(
    number: int, where: str, folder: Path
) -> None:
    before = set(folder.iterdir())
    process = started(code=_AS_IN_A_TERMINAL + _LONG.format(forever=where.strip()))
    try:
        wait_for(folder, process)
        process.send_signal(number)
        _, told = process.communicate(timeout=600)
    finally:
        process.kill()
    assert process.returncode == 128 + number
    assert "Traceback" not in told
    assert len(told.splitlines()) <= 1
    assert set(folder.iterdir()) == before


def test_a_command_that_ignores_a_closed_terminal_goes_on(folder: Path) -> None:
    """As `nohup` starts it."""
    code = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n" + _LONG.format(
        forever="import os; os.kill(os.getpid(), signal.SIGHUP); return tilewright.empty((3, 2))"
    )
    process = started(code=code.replace("ctypes,", "ctypes, signal,"))
    process.communicate(timeout=600)
    assert process.returncode == 0
    assert Path("c.npy").exists()


# Every command with what it cannot use.

WRONG: list[tuple[object, ...]] = [
    ("nonsense",),
    ("--nonsense",),
    ("devices", "--nonsense"),
    ("devices", "too", "many"),
    ("peak", "-d", "nope"),
    ("peak", "--plot", "x.gif"),
    ("ladder", "--size", "0"),
    ("ladder", "--size", "many"),
    ("ladder", "--size", "99999999"),
    ("ladder", "--sizes", "1,two"),
    ("ladder", "--size", "8", "--sizes", "8"),
    ("ladder", "--dtype", "int8"),
    ("ladder", "--plot", "x.gif"),
    ("ladder", "--json", "nope/x.json"),
    ("roofline", "--size", "0"),
    ("roofline", "nope.npz"),
    ("roofline", "--count", "3"),
    ("roofline", "--dtype", "nope"),
    ("tune", "--budget", "-1"),
    ("tune", "--dtype", "nope"),
    ("tune", "--layout", "nope"),
    ("tune", "--kernel", "nope"),
    ("tune", "--shapes", "nope.csv"),
    ("matmul",),
    ("matmul", "a.npy"),
    ("matmul", "nope.npy", "b.npy", "-o", "c.npy"),
    ("matmul", "a.npy", "b.npy", "-o", "nope/c.npy"),
    ("matmul", "a.npy", "b.npy", "-o", "c.npy", "--alpha", "x"),
    ("matmul", "a.npy", "b.npy", "-o", "c.npy", "-d", "nope"),
    ("matmul", "a.npy", "b.npy", "-o", "c.npy", "--kernel", "nope"),
    ("matmul", "a.npy", "a.npy", "-o", "c.npy"),
    ("grouped",),
    ("grouped", "nope.csv"),
    ("grouped", "--uniform", "9", "1"),
    ("grouped", "--uniform", "1"),
    ("grouped", "--suite", "nope"),
    ("grouped", "--uniform", "1", "9", "--order", "nope"),
    ("grouped", "--uniform", "1", "9", "--seed", "-1"),
    ("demo", "--size", "0"),
    ("demo", "-d", "nope"),
    ("demo", "--out", "a.npy"),
    ("onebit", "nonsense"),
    ("onebit", "convert", "nope.onnx", "x.npz"),
    ("onebit", "convert", "nope.onnx", "x.txt"),
    ("onebit", "info", "a.npy"),
    ("onebit", "info", "both.npz"),
    ("onebit", "run", "nope.npz", "nope.png"),
    ("onebit", "run", "nope.npz", "nope.png", "--top", "0"),
    ("onebit", "profile", "nope.npz"),
    ("onebit", "profile", "nope.npz", "--repeats", "0"),
    ("onebit", "bench", "--shapes", "axb"),
    ("cache", "nonsense"),
    ("cache", "clear", "--part", "nope"),
    ("cache", "export", "nope/x.json"),
    ("cache", "import", "nope.json"),
    ("cache", "import", "a.npy"),
]


@pytest.mark.parametrize("command", WRONG, ids=lambda command: " ".join(map(str, command)))
def test_what_a_command_cannot_use_is_one_line_and_changes_nothing(
    command: tuple[object, ...], folder: Path
) -> None:
    before = {path: path.read_bytes() for path in folder.iterdir()}
    done = invoke(*command)
    assert done.exit_code == 2, done.exception
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("error: ")
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize("command", [(), ("onebit",), ("cache",)], ids=" ".join)
def test_a_command_of_commands_alone_shows_its_help(command: tuple[str, ...]) -> None:
    done = invoke(*command)
    assert done.exit_code == 2
    assert "Usage:" in done.output


def test_too_few_values_of_an_option_hint_at_the_commands_own_help() -> None:
    done = subprocess.run(
        [*COMMAND, "grouped", "--uniform", "5"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "(`tilewright grouped --help` tells what is accepted)" in done.stderr


def test_asking_about_a_cache_that_is_not_there_does_not_make_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    absent = tmp_path / "absent"
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(absent))
    done = invoke("cache", "info")
    assert done.exit_code == 0, done.stderr
    assert "not there yet" in done.stdout
    assert not absent.exists()


@pytest.mark.parametrize("columns", [1, 10, 40])
@pytest.mark.parametrize("command", [("devices",), ("cache", "info"), ("--help",)], ids=" ".join)
def test_narrow_terminals_are_no_error(
    command: tuple[str, ...], columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert invoke(*command).exit_code == 0


def test_an_error_of_the_system_is_one_line_with_its_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(28, "No space left on device", "somewhere")

    monkeypatch.setattr(tilewright.products.dense, "explain", fail)
    done = invoke("matmul", "a.npy", "b.npy", "--explain")
    assert done.exit_code == 2
    assert done.stderr == "error: somewhere: No space left on device\n"


STOPPED = """
import os, runpy, signal, sys
from importlib.abc import MetaPathFinder

class Stopping(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == module:
            del sys.meta_path[0]
            os.kill(os.getpid(), signal.SIGINT)

module = sys.argv.pop(1)
stop = Stopping()
sys.meta_path.insert(0, stop)
import tilewright
sys.argv[0] = tilewright.__file__.replace("__init__", "__main__")
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize(
    ("module", "command"),
    [
        *(("tilewright.cli", "devices"), ("typer", "devices"), ("numpy", "matmul")),
        *(("tilewright.cli.enhance", "enhance"), ("tilewright.cli.net", "net")),
        ("rich.markdown", "--help"),
    ],
)
def test_ctrl_c_while_modules_are_loaded_is_one_line(module: str, command: str) -> None:
    """Whichever it is that is being loaded."""
    line = [sys.executable, "-c", _AS_IN_A_TERMINAL + STOPPED, module, command, "--help"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "error: interrupted\n")


@pytest.mark.parametrize(
    ("closed", "words", "stderr"),
    [
        (">&-", "cache info", "error: standard output: cannot be written"),
        (
            "<&- >&-",
            "--version",
            "error: standard output: cannot be written",
        ),
        ("2>&-", "cache nonsense", ""),
    ],
)
@pytest.mark.skipif(os.name != "posix", reason="a shell closes streams")
def test_a_stream_that_the_caller_closed_is_no_bug(closed: str, words: str, stderr: str) -> None:
    """One line or none, and nothing printed into whatever file is opened first."""
    line = f"exec {sys.executable} -m tilewright {words} {closed}"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == bool(stderr)
    assert done.stderr.startswith(stderr)


def test_help_shows_no_type_behind_an_option_that_takes_no_value() -> None:
    for command in ((), ("matmul",), ("net",), ("net", "quantise"), ("cache", "info")):
        assert "bool" not in invoke(*command, "--help").stdout
