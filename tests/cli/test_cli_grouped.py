"""`tilewright grouped`: every way is run, checked and shown; bad sizes are one line each."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.planner_example import example
from tests.cli.test_cli import check_error, invoke
from tests.support import compiled_once
from tilewright import Device, forget
from tilewright.inputs.devices import host
from tilewright.report import grouped as measuring
from tilewright.report import grouped_ways
from tilewright.tuning import narrow, visits

ROOT = Path(__file__).parents[2]
SHAPES = "m,n,k\n5,6,7\n40,30,20\n1,1,0\n0,3,2\n64,16,48\n"
COLUMNS = {"m": [5, 40, 1, 0, 64], "n": [6, 30, 1, 3, 16], "k": [7, 20, 0, 2, 48]}
WAYS = [
    *("loop of numpy.matmul", "loop of tilewright.matmul", "tilewright.grouped_matmul"),
    "padded to the largest",
]
PLANS = ["plan, given", "plan, k-descending", "plan, bucketed", "plan, longest-first", "plan, auto"]


@pytest.fixture(scope="module")
def curves(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache for curves of few and small products, which no test of another file finds.

    What is compiled, OpenCL's and Numba's, is that of all tests: more than half of the commands'
    time would be compiling.
    """
    forget()
    folder = tmp_path_factory.mktemp("curves")
    compiled_once.link(folder)
    yield folder
    forget()


@pytest.fixture
def folder(tmp_path: Path, curves: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(curves))
    monkeypatch.setattr(visits, "SIZES", visits.SIZES[:4])
    monkeypatch.setattr(narrow, "WIDTHS", narrow.WIDTHS[::3])
    (tmp_path / "shapes.csv").write_text(SHAPES)
    np.savez(tmp_path / "shapes.npz", **{name: np.array(c) for name, c in COLUMNS.items()})
    monkeypatch.chdir(tmp_path)
    for name, value in (("_BLOCK", 0.0), ("_ROUNDS", 2), ("REST", 0.0)):
        monkeypatch.setattr(measuring, name, value)
    return tmp_path


# The command in a process of its own, with as few points of curves as the tests here have.
COMMAND = """
import sys
from tilewright.tuning import narrow, visits
visits.SIZES, narrow.WIDTHS = visits.SIZES[:4], narrow.WIDTHS[::3]
from tilewright.cli import app
app(sys.argv[1:])
"""


def test_every_way_is_measured_in_a_real_process(folder: Path, intel: Device) -> None:
    command = [sys.executable, "-c", COMMAND, "grouped", "shapes.csv", "-d", intel.id]
    done = subprocess.run(
        [*command, "--json", "run.json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for said in ("GFLOP/s", "ceiling", "balance", "auto took", "wrote run.json"):
        assert said in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100
    run = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    assert run["schema"] == "tilewright-grouped/1"
    assert [way["name"] for way in run["ways"]] == WAYS + PLANS
    assert {name: run[name] for name in "mnk"} == COLUMNS
    assert run["flops"] == 2 * sum(np.prod([COLUMNS[x] for x in "mnk"], axis=0))
    for way in run["ways"]:
        assert way["right"]
        assert way["ms"] == pytest.approx(np.median(way["samples_ms"]))
    for way in run["ways"][len(WAYS) :]:
        assert len(way["plan"]["balance_before"]) == intel.compute_units
        assert way["plan"]["anew_ms"] > 0


@pytest.mark.parametrize("batch", [("shapes.npz",), ("--uniform", 1, 20, "--count", 30)])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_files_and_draws_run_in_every_dtype(
    folder: Path, intel: Device, batch: tuple[Any, ...], dtype: str
) -> None:
    done = invoke("grouped", *batch, "-d", intel.id, "--dtype", dtype, "--order", "auto")
    assert done.exit_code == 0, done.stdout + done.stderr
    assert "plan, auto" in done.stdout
    assert "plan, given" not in done.stdout
    assert ("NumPy has no BLAS for float16" in done.stdout) == (dtype == "float16")


def test_the_host_is_asked_without_opencl(folder: Path) -> None:
    done = invoke("grouped", "shapes.csv", "--device", "host")
    assert done.exit_code == 0, done.stderr
    assert "on host" in done.stdout
    assert all(way in done.stdout for way in (*WAYS, *PLANS))


def test_a_suite_is_run_and_the_picture_drawn(folder: Path, intel: Device) -> None:
    pytest.importorskip("matplotlib")
    options = ("--order", "bucketed", "--plot", "balance.svg", "-d", intel.id)
    done = invoke("grouped", "--suite", "fronts-grid-2d", "--seed", 27, *options)
    assert done.exit_code == 0, done.stderr
    picture = (folder / "balance.svg").read_text(encoding="utf-8")
    for said in ("fronts-grid-2d", "as given", "bucketed", "a GPU of 64 units, modelled"):
        assert said in picture


def test_stacks_that_grow_too_large_are_not_made(
    folder: Path, intel: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grouped_ways, "MOST_PADDED", 1000)
    done = invoke("grouped", "shapes.csv", "-d", intel.id, "--order", "given")
    assert done.exit_code == 0
    assert "not run: padded to the largest: its stacks would take" in done.stdout


def test_a_wrong_result_is_shown_and_the_status_is_one(
    folder: Path, intel: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    forgetful = measuring.planned

    def forget(*arguments: Any) -> Any:
        way = forgetful(*arguments)
        way.launch = lambda: None
        return way

    monkeypatch.setattr(measuring, "planned", forget)
    done = invoke("grouped", "shapes.csv", "-d", intel.id, "--order", "given")
    assert done.exit_code == 1
    assert "inf wrong" in done.stdout


BAD_CSV = {
    "": ("is empty", "m,n,k"),
    "m,n,k\n": ("no problem",),
    "m,n\n1,2\n": ("line 1", "no column k"),
    "m,n,k\n1,2,3\n4,nan,5\n": ("line 3", "n='nan'", "whole numbers"),
    "m,n,k\n1,2,-3\n": ("line 2", "k='-3'"),
    "m,n,k\n1,2.5,3\n": ("line 2", "n='2.5'"),
    "m,n,k\n1,,3\n": ("line 2", "n=''"),
    "m,n,k\n1,2\n": ("line 2", "2 fields", "3"),
    f"m,n,k\n1,2,{2**31}\n": ("line 2", f"k='{2**31}'"),
    "m,n,k\n1,2,99999999999999999999999\n": ("line 2", "k='9999"),
    'm,n,k\n"1,2,3\n': ("cannot be read",),
}


@pytest.mark.parametrize("text", BAD_CSV, ids=range(len(BAD_CSV)))
def test_a_bad_csv_is_one_line(folder: Path, text: str) -> None:
    (folder / "bad.csv").write_text(text)
    check_error(invoke("grouped", "bad.csv"), "bad.csv", "accepted", *BAD_CSV[text])


BAD_NPZ: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({"m": [1], "n": [1]}, ("no column k",)),
    ({"m": [1.0], "n": [1], "k": [1]}, ("m is float64",)),
    ({"m": [[1]], "n": [1], "k": [1]}, ("shape (1, 1)",)),
    ({"m": [1], "n": [-1], "k": [1]}, ("n[0]=-1",)),
    ({"m": [1], "n": [1], "k": [2**40]}, ("k[0]=1099511627776",)),
    ({"m": [1, 2], "n": [1], "k": [1]}, ("2, 1 and 1 entries",)),
    ({"m": np.empty(0, int), "n": np.empty(0, int), "k": np.empty(0, int)}, ("no problem",)),
    ({"m": np.array([None]), "n": [1], "k": [1]}, ("cannot be read",)),
]


@pytest.mark.parametrize(("columns", "said"), BAD_NPZ, ids=range(len(BAD_NPZ)))
def test_a_bad_npz_is_one_line(folder: Path, columns: Any, said: tuple[str, ...]) -> None:
    np.savez(folder / "bad.npz", allow_pickle=True, **columns)
    check_error(invoke("grouped", "bad.npz"), "bad.npz", "accepted", *said)


def test_what_is_no_file_of_sizes_is_one_line(folder: Path) -> None:
    check_error(invoke("grouped", "none.csv"), "none.csv", "no such file")
    (folder / "a.txt").write_text(SHAPES)
    check_error(invoke("grouped", "a.txt"), "suffix '.txt'")
    (folder / "a.npz").write_bytes(b"PK no archive")
    check_error(invoke("grouped", "a.npz"), "no archive")
    whole = (folder / "shapes.npz").read_bytes()
    (folder / "a.npz").write_bytes(whole[: len(whole) // 2])
    check_error(invoke("grouped", "a.npz"), "a.npz")
    (folder / "a.csv").write_bytes(b"m,n,k\n\xff\xfe,1,1\n")
    check_error(invoke("grouped", "a.csv"), "cannot be read")


BAD_ARGUMENTS = [
    ((), "0 of them given"),
    (("shapes.csv", "--suite", "uniform-1-32"), "2 of them given"),
    (("--suite", "nope"), "--suite='nope'"),
    (("--uniform", 5, 4), "1 <= LO <= HI"),
    (("--uniform", 0, 4), "1 <= LO <= HI"),
    (("--uniform", 1, 4, "--count", 0), "--count=0"),
    (("shapes.csv", "--count", 3), "--uniform alone"),
    (("shapes.csv", "--seed", -1), "--seed=-1"),
    (("shapes.csv", "--order", "random"), "--order='random'"),
    (("shapes.csv", "--dtype", "int8"), "--dtype='int8'"),
    (("shapes.csv", "--device", "opencl:77"), "opencl:77"),
    (("shapes.csv", "--plot", "a.pdf"), "suffix '.pdf'"),
]


@pytest.mark.parametrize(("arguments", "said"), BAD_ARGUMENTS, ids=range(len(BAD_ARGUMENTS)))
def test_a_bad_argument_is_one_line(folder: Path, arguments: tuple[Any, ...], said: str) -> None:
    check_error(invoke("grouped", *arguments), said)


def test_what_half_the_memory_cannot_hold_is_refused_before_anything_is_made(folder: Path) -> None:
    side = int((host().memory / 8) ** 0.5)
    (folder / "large.csv").write_text(f"m,n,k\n{side},{side},{side}\n")
    done = invoke("grouped", "large.csv", "--device", "host", "--json", "a.json")
    check_error(done, "large.csv", "half the memory", "MiB")
    assert not (folder / "a.json").exists()


def test_the_example_in_the_docs_is_what_the_code_prints() -> None:
    page = (ROOT / "docs/planner.md").read_text(encoding="utf-8")
    assert "\n".join(example()) in page
