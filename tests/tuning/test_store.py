"""The store: what processes write at once, what is merged on import, what clearing leaves."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.support import made_up
from tilewright.backends import backends
from tilewright.cli import app
from tilewright.errors import FileError
from tilewright.tuning import crossover, exchange, store

OPENCL = backends()["opencl"]
PRIORS = OPENCL.priors(made_up.TWO_CORES)
DOCUMENT, RECORD = "panel-0", "float32 float32 rows-rows large"
SEEN = {"shapes": [1], "tried": {"fast": [1.0], "broken": "it hangs"}}
WINNER = {"config": {"micro_m": 6}, "ratio": 0.8}
pytestmark = pytest.mark.usefixtures("own_store")


def imported(folder: str, there: Any, here: Any, file: Path) -> Any:
    """The record that a store with `here` has after importing one with `there`; None is absent."""

    def put(record: Any) -> None:
        records = {} if record is None else {RECORD: record}
        store.update(folder, DOCUMENT, lambda _: {"records": records})

    put(there)
    assert CliRunner().invoke(app, ["cache", "export", str(file)]).exit_code == 0
    put(here)
    assert CliRunner().invoke(app, ["cache", "import", str(file)]).exit_code == 0
    return store.read(folder, DOCUMENT)["records"][RECORD]


@pytest.mark.parametrize(
    ("here", "merged"),
    [
        (None, SEEN),
        ("no record", SEEN),
        (
            {"shapes": [1], "spent": 2.0, "tried": {"fast": [3.0]}},
            {"shapes": [1], "spent": 2.0, "tried": {"fast": [3.0], "broken": "it hangs"}},
        ),
        (
            {"shapes": [2], "spent": 2.0, "tried": {"slow": [9.0]}},
            {"shapes": [2], "spent": 2.0, "tried": {"slow": [9.0], "broken": "it hangs"}},
        ),
    ],
    ids=["absent", "damaged", "same shapes", "other shapes"],
)
def test_imported_candidates_join_those_here_but_times_only_of_the_same_shapes(
    here: Any, merged: dict[str, Any], tmp_path: Path
) -> None:
    assert imported(store.TRIED, SEEN, here, tmp_path / "export.json") == merged


@pytest.mark.parametrize(
    ("here", "better"),
    [
        (None, WINNER),
        ({"ratio": "least"}, WINNER),
        ({**WINNER, "ratio": 0.9}, WINNER),
        ({**WINNER, "ratio": 0.7}, {**WINNER, "ratio": 0.7}),
    ],
    ids=["absent", "damaged", "worse", "better"],
)
def test_of_an_imported_winner_and_the_one_here_the_better_stays(
    here: Any, better: dict[str, Any], tmp_path: Path
) -> None:
    assert imported(store.TUNED, WINNER, here, tmp_path / "export.json") == better


def test_locks_are_no_part_of_the_cache_and_survive_its_clearing(own_store: Path) -> None:
    """A process that waits for a lock and one that makes it anew would both hold one."""
    store.update(store.TUNED, DOCUMENT, lambda _: {"records": {}})
    (lock,) = (own_store / "tuned").glob("*.lock")
    assert [(part.name, part.files) for part in exchange.parts() if part.files] == [("tuned", 1)]
    assert exchange.clear(exchange.PARTS) == 1
    assert lock.exists()


def test_folders_named_after_sources_go_when_they_are_empty_and_those_of_every_version_stay(
    own_store: Path,
) -> None:
    made = [own_store / name for name in ("programs", "weights", "numba-0a1b", "vendors-0a1b")]
    for folder in made:
        (folder / "inner").mkdir(parents=True)
        (folder / "inner" / "file").write_bytes(b"x")
    assert exchange.clear(exchange.PARTS) == 4
    assert [folder.name for folder in made if folder.exists()] == ["programs", "weights"]


def test_curves_of_other_dtypes_that_another_process_stores_meanwhile_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = crossover.Campaign(made_up.TWO_CORES, OPENCL, "float32", PRIORS)
    store.save(one.key, {"float64": "meanwhile"})
    within: list[Path] = []

    def update(folder: str, name: str, change: Any, own: str | None = None) -> None:
        within.append(Path(folder, name))
        locked(folder, name, change, own)

    locked = store.update
    monkeypatch.setattr(store, "update", update)
    one._save()
    assert within == [Path("measured", store.digest(one.key))]  # read and written under its lock
    assert store.load(one.key)["float64"] == "meanwhile"
    assert "float32 visits" in store.load(one.key)


@pytest.mark.parametrize("more", [0, 1])
def test_an_export_of_more_than_32_mebibytes_is_not_read(more: int, tmp_path: Path) -> None:
    """Up to there what lies in it decides: here nothing does."""
    file = tmp_path / "large.json"
    with file.open("wb") as empty:
        empty.truncate((32 << 20) + more)
    with pytest.raises(FileError) as refused:
        exchange.import_file(file)
    assert (f"more than {32 << 20} bytes" in str(refused.value)) == bool(more)


def test_names_of_files_stay_as_they_are_so_that_those_of_earlier_versions_are_found() -> None:
    assert store.digest("a key") == hashlib.sha256(b"a key").hexdigest()[:32]
    assert len(store.digest("")) == 32
