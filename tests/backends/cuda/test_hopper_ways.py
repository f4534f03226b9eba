"""How a bucket is multiplied: the best of all ways that could be cut and dealt, few being cut."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.hopper_work import Memory, sizes
from tests.support.triton_proof import CUDA_H200
from tilewright.backends.cuda import choose
from tilewright.backends.cuda.hopper import cost, records, ways
from tilewright.backends.cuda.hopper.blocks import SHAPES, SPLIT
from tilewright.backends.cuda.hopper.orient import orient
from tilewright.backends.cuda.machine import nvrtc
from tilewright.backends.cuda.tiled import engine as tiled
from tilewright.backends.cuda.vendor import cublas
from tilewright.backends.cuda.work import Ints
from tilewright.errors import DeviceError
from tilewright.facts.measured.scale import Scale

SKEWED = np.minimum(np.random.default_rng(4).zipf(1.4, (400, 3)), 900).tolist()
BATCHES = {
    "one": Memory([(333, 333, 333)]),
    "large": Memory([(3001, 3001, 801)]),
    "square": Memory([(n, n, 64 + n) for n in range(1, 200)], "rrr", 8),
    "alike": Memory([(256, 256, 128)] * 70, "rcr", 8),
    "small": Memory(sizes(300, 1, 64)),
    "middle": Memory(sizes(150, 1, 512), "crr", 8),
    "turned": Memory(sizes(60, 1, 700), "rcc"),
    "wide": Memory(sizes(30, 256, 2048), "rrr", 2),
    "skewed": Memory([tuple(row) for row in SKEWED]),
    "deep": Memory([(64, 64, k) for k in range(1000, 20_000, 97)]),
    "flat": Memory([(m, 1 + m % 24, 8 + m % 128) for m in range(1, 2000, 9)], "rrr", 8),
}


def _every(memory: Memory) -> tuple[list[ways.Way], Ints]:
    work = memory.work(1 << 20)
    both = [orient(work, turned=turned) for turned in (False, True)]
    return [(batch, shape) for batch in both for shape in SHAPES], np.arange(len(memory.mnk))


def _cut_and_dealt(way: ways.Way, which: Ints, order: str, there: Scale) -> float:
    """Seconds of a way as all of its tiles have them."""
    batch, shape = way
    clusters, tiles = shape.clusters(there.units), records.cut(batch, which, shape, order, there)
    busiest = max(float(tiles.seconds.sum()) / clusters, float(tiles.seconds.max()))
    turns = len(tiles.problem) / clusters
    if ways.is_dealt(way, ways._totals(tiles), there):
        busiest = records.balanced(batch, tiles, shape, clusters, there)[2]
    waiting = cost.memory_seconds(shape, ways.moved_bytes(batch, which), turns, there)
    return max(busiest, waiting) + busiest / 1000


@pytest.mark.parametrize("order", ["auto", "given"])
@pytest.mark.parametrize("units", [132, 78])
@pytest.mark.parametrize("name", BATCHES)
def test_the_first_of_the_fastest_is_taken(name: str, units: int, order: str) -> None:
    every, which = _every(BATCHES[name])
    there = Scale(units, 0.9)
    seconds = [_cut_and_dealt(way, which, order, there) for way in every]
    assert ways.fastest(every, which, order, there) == every[int(np.argmin(seconds))]


@pytest.mark.parametrize("shape", [*SHAPES, SPLIT], ids=lambda shape: shape.name)
@pytest.mark.parametrize("name", BATCHES)
def test_bounds_hold_and_sums_over_sizes_are_those_over_tiles(name: str, shape: object) -> None:
    for (batch, _), which in [(way, _every(BATCHES[name])[1]) for way in _every(BATCHES[name])[0]]:
        tiles = records.cut(batch, which, shape, "given")  # type: ignore[arg-type]
        count, work, longest = records.totals(batch, which, shape)  # type: ignore[arg-type]
        assert (count, longest) == (len(tiles.problem), tiles.seconds.max())
        assert work == pytest.approx(tiles.seconds.sum(), rel=1e-12)
        found = cost.bounds((shape,), batch, which, records.AS_MEASURED)  # type: ignore[arg-type]
        assert found.tiles.tolist() == [count]
        assert found.work[0] <= work * (1 + 1e-12)
        assert found.longest[0] <= longest * (1 + 1e-12)


@pytest.mark.parametrize(("pad", "layout"), [(1, "rrr"), (8, "rrr"), (1, "rcr")])
def test_the_way_of_a_large_batch_is_found_without_cutting_any(
    pad: int, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """200 of 256 to 2048: twelve ways have more than 100,000 tiles, of six sizes a problem each."""
    every, which = _every(Memory(sizes(200, 256, 2048), layout, pad))
    timed, whole = [], records._timed

    def counted(*given: object, **named: object) -> records.Tiles:
        found = whole(*given, **named)  # type: ignore[arg-type]
        timed.append(len(found.problem))
        return found

    assert sum(records.totals(batch, which, shape)[0] for batch, shape in every) > 100_000
    monkeypatch.setattr(records, "_timed", counted)
    monkeypatch.setattr(records, "cut", lambda *given: pytest.fail("cut"))
    ways.fastest(every, which, "auto", records.AS_MEASURED)
    assert 0 < sum(timed) < 12 * 6 * 200


@pytest.fixture
def libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines answer as if every library were here."""
    monkeypatch.setattr(nvrtc, "missing", lambda: None)
    monkeypatch.setattr(cublas, "missing", lambda: None)


@pytest.mark.usefixtures("libraries")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("name", BATCHES)
def test_who_is_not_asked_in_a_hurry_would_not_have_won(name: str, dtype: str) -> None:
    work = BATCHES[name].work(1 << 20, dtype)
    whole, hurried = (choose.judge(work, CUDA_H200, hurried=hurry) for hurry in (False, True))
    assert hurried.best == whole.best
    asked = {one.engine for one in hurried.proposals}
    for one in whole.proposals:
        assert one.engine in asked or one.seconds > whole.best.seconds  # type: ignore[operator]
    for one in choose.engines():
        if one.why_not(work, CUDA_H200) is None:
            made = [x.seconds for x in whole.proposals if x.engine == one.name]
            assert all(one.least(work, CUDA_H200) <= seconds for seconds in made if seconds)


@pytest.mark.usefixtures("libraries")
def test_no_tiles_are_laid_out_for_halves_that_tensor_cores_multiply_sooner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tiled, "lay_out", lambda *given: pytest.fail("laid out"))
    work = Memory(sizes(200, 300, 1900, seed=9)).work(1 << 20)
    assert choose.judge(work, CUDA_H200, hurried=True).best.engine == "hopper"


@pytest.mark.usefixtures("libraries")
def test_where_the_best_cannot_be_prepared_all_are_asked() -> None:
    work = Memory(sizes(200, 300, 1900, seed=9)).work(1 << 20)
    tried: list[str] = []

    def prepare(proposal: object) -> str:
        tried.append(proposal.engine)  # type: ignore[attr-defined]
        if tried[-1] == "hopper":
            raise DeviceError("cannot be compiled")
        return "ready"

    with pytest.warns(match="cannot be compiled"):
        found, ready = choose._first(work, CUDA_H200, None, prepare)
    assert (found.engine, ready) == ("triton_grouped", "ready")
    assert tried == ["hopper", "hopper", "triton_grouped"]
