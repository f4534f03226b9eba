"""What is kept for operands that come again elsewhere, plans, maps, launches: as if made anew."""

from __future__ import annotations

import ctypes
import dataclasses
import struct
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.backends.cuda.test_cuda_engines import dense
from tilewright.arrays.addresses import Columns
from tilewright.backends.cuda.hopper import engine, maps
from tilewright.backends.cuda.hopper.bind import Ragged
from tilewright.backends.cuda.hopper.blocks import SHAPES
from tilewright.backends.cuda.machine import nvrtc, tensor_maps
from tilewright.backends.cuda.machine.tensor_maps import ALIGNMENT, BYTES
from tilewright.backends.cuda.ragged import hopper_cuts, hopper_depths, hopper_rows
from tilewright.backends.cuda.ragged.moving import LEFT, OUT, RIGHT, Moving
from tilewright.backends.cuda.work import Work
from tilewright.errors import DeviceError
from tilewright.facts.measured.scale import Scale

UNITS = Scale()


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Nothing kept of earlier tests."""
    kept = (engine._plans.clear, maps._made.clear, tensor_maps.place_of_rows.cache_clear)
    for forget in kept:
        forget()
    yield
    for forget in kept:
        forget()


def batch(seed: int = 0, count: int = 40) -> Work:
    """Products of all layouts and alignments."""
    random = np.random.default_rng(seed)
    m, n, k = random.integers(1, 300, (3, count)).astype(np.int64)

    def lies(rows: Any, cols: Any) -> Columns:
        at = random.integers(1, 2**20, count) * 2 ** random.integers(1, 10, count)
        across = random.integers(0, 2, count) == 1
        pad = random.integers(0, 9, count)
        row, col = np.where(across, 1, cols + pad), np.where(across, rows + pad, 1)
        return Columns(at.astype(np.int64), rows, cols, 2 * row, 2 * col)

    parts = {"a": lies(m, k), "b": lies(k, n), "c": lies(m, n)}
    one = dense(1, 1, 1, "bfloat16")
    ones = np.ones(count)
    return dataclasses.replace(one, alpha=ones, beta=0 * ones, **parts)  # type: ignore[arg-type]


def moved(work: Work, by: int) -> Work:
    parts = {
        name: dataclasses.replace(part, address=part.address + by)
        for name, part in (("a", work.a), ("b", work.b), ("c", work.c))
    }
    return dataclasses.replace(work, **parts)  # type: ignore[arg-type]


def same(x: Any, y: Any) -> bool:
    """Whether records agree in every column."""
    if isinstance(x, np.ndarray):
        return np.array_equal(x, y)
    if dataclasses.is_dataclass(x):
        return all(same(getattr(x, f.name), getattr(y, f.name)) for f in dataclasses.fields(x))
    if isinstance(x, tuple):
        return len(x) == len(y) and all(map(same, x, y))
    return bool(x == y)


@pytest.mark.parametrize("seed", range(3))
def test_a_batch_that_lies_alike_elsewhere_is_not_planned_again(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = batch(seed)
    engine.recalled(work, SHAPES, UNITS)
    there = moved(work, 4096)
    wanted = engine.plan(there, SHAPES, UNITS)
    monkeypatch.setattr(engine, "plan", None)  # calling it would fail
    assert same(engine.recalled(there, SHAPES, UNITS), wanted)


def test_whoever_plans_while_another_thread_keeps_its_plan_gets_its_own_addresses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Threads that meet a shape together all plan it, and one plan is kept."""
    work, plan = batch(), engine.plan
    there = moved(work, 4096)

    def overtaken(*given: Any) -> Any:
        monkeypatch.setattr(engine, "plan", plan)
        engine.recalled(there, SHAPES, UNITS)  # the other thread, which is done first
        return plan(*given)

    monkeypatch.setattr(engine, "plan", overtaken)
    assert same(engine.recalled(work, SHAPES, UNITS), plan(work, SHAPES, UNITS))
    assert len(engine._plans) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda work: moved(work, 2),
        lambda work: moved(work, 16),
        lambda work: dataclasses.replace(
            work, c=dataclasses.replace(work.c, rows=work.m[::-1].copy())
        ),
        lambda work: dataclasses.replace(
            work, b=dataclasses.replace(work.b, row=work.b.row + 16 * (work.b.col == 2))
        ),
        lambda work: dataclasses.replace(work, order="given"),
    ],
)
def test_what_lies_otherwise_is(change: Any) -> None:
    work = batch()
    engine.recalled(work, SHAPES, UNITS)
    other = change(work)
    assert same(engine.recalled(other, SHAPES, UNITS), engine.plan(other, SHAPES, UNITS))
    assert len(engine._plans) == 2


class Encoder:
    """The driver's calls: a map is its facts, one after another; launches are noted."""

    FACTS = "<6q"

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        driver = pytest.importorskip("cuda.bindings.driver")
        self.encoded = 0
        monkeypatch.setattr(driver, "cuTensorMapEncodeTiled", self.encode)
        monkeypatch.setattr(driver, "cuTensorMapReplaceAddress", self.replace)
        monkeypatch.setattr(driver, "cuLaunchKernel", self.launch)
        self.driver, self.refused = driver, 0
        self.launched: list[tuple[int, ...]] = []

    def encode(self, kind: Any, rank: int, at: int, sizes: Any, strides: Any, box: Any, *rest: Any):  # type: ignore[no-untyped-def]
        """A map of these facts."""
        self.encoded += 1
        promotion = rest[-2]
        numbers = [int(x) for x in (*sizes, *strides, box[1])]
        made = self.driver.CUtensorMap()
        facts = struct.pack(self.FACTS, at, *numbers, 1000 * int(kind) + int(promotion))
        ctypes.memmove(int(made.getPtr()), facts, len(facts))
        return self.driver.CUresult.CUDA_SUCCESS, made

    def replace(self, made: Any, at: int) -> tuple[Any]:
        """The same at another address, which must not be the one to refuse."""
        if at == self.refused:
            return (self.driver.CUresult.CUDA_ERROR_INVALID_VALUE,)
        ctypes.memmove(int(made.getPtr()), struct.pack("<q", at), 8)
        return (self.driver.CUresult.CUDA_SUCCESS,)

    def launch(self, *given: Any) -> tuple[Any]:
        """Note where the table, the maps' matrices, C and the bias of a launch lie."""
        values = (ctypes.c_void_p * 6).from_address(given[-2])
        table = ctypes.c_void_p.from_address(values[0]).value
        own = [ctypes.c_int64.from_address(values[5] + BYTES * at).value for at in range(3)]
        shared = Ragged.from_address(values[4])
        self.launched.append((table, *own, shared.c, shared.bias))
        return (self.driver.CUresult.CUDA_SUCCESS,)


class At:
    """As much of a tensor as a launch looks at."""

    def __init__(self, place: int) -> None:
        self.data_ptr = lambda: place


def test_a_launch_finds_its_operands_where_they_are_now(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = Encoder(monkeypatch)
    matrices = [
        (place, maps.Matrix(256 * (1 + place), 64, 64, 128)) for place in (LEFT, RIGHT, OUT)
    ]
    kernel = nvrtc.Function("hopper_multiply", 0, None, 0)
    moving = Moving(kernel, 1, 384, 0, matrices, "bfloat16", Ragged())

    def found(*places: int) -> tuple[Any, ...]:
        """Where a launch finds its table, the maps' matrices, C and the bias."""
        table, left, right, out, bias = map(At, places)
        moving.launch(7, table, left, right, out, bias if bias.data_ptr() else None)
        return encoder.launched.pop()

    assert found(16, 256, 512, 768, 32) == (16, 256, 512, 768, 768, 32)
    assert found(48, 256, 512, 768, 0) == (48, 256, 512, 768, 768, None)
    encoder.refused = 3072
    with pytest.raises(DeviceError, match="address of a tensor map"):
        found(16, 1024, 3072, 2048, 32)
    assert not encoder.launched
    # Some of the maps had moved.
    assert found(16, 256, 512, 768, 32) == (16, 256, 512, 768, 768, 32)
    assert found(16, 1024, 512, 2048, 32) == (16, 1024, 512, 2048, 2048, 32)


class Words(Encoder):
    """Maps as Hopper's drivers make them: 4 bytes of rows less one, maybe something `beside`."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, beside: Any = lambda rows, columns: 0
    ) -> None:
        super().__init__(monkeypatch)
        self.beside = beside

    def encode(self, kind: Any, rank: int, at: int, sizes: Any, strides: Any, box: Any, *rest: Any):  # type: ignore[no-untyped-def]
        """The address, what lies beside rows, strides, the box, columns and rows, each less one."""
        self.encoded += 1
        columns, rows = map(int, sizes)
        facts = struct.pack(
            "<q6I",
            at,
            self.beside(rows, columns),
            int(strides[0]),
            int(box[1]),
            int(kind),
            columns - 1,
            rows - 1,
        )
        made = self.driver.CUtensorMap()
        ctypes.memmove(int(made.getPtr()), facts, len(facts))
        return self.driver.CUresult.CUDA_SUCCESS, made


# What else a driver may write into a map: nothing, by rows, by rows of some matrices alone.
BESIDE = {
    "alone": lambda rows, columns: 0,
    "by rows": lambda rows, columns: rows % 7,
    "of the wide": lambda rows, columns: rows % 7 if columns == 4096 else 0,
}


@pytest.mark.parametrize("beside", BESIDE)
def test_maps_of_a_batch_of_another_size_are_those_made_anew(
    beside: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = Words(monkeypatch, BESIDE[beside])
    assert tensor_maps.place_of_rows() == (None if beside == "by rows" else 28)
    matrices = [
        (LEFT, maps.Matrix(256, 64, 64, 128)),
        (RIGHT, maps.Matrix(512, 50, 4096, 8192)),
        (OUT, maps.Matrix(768, 50, 48, 256)),
        (OUT, maps.Matrix(768, 50, 48, 256, 16)),
    ]
    kernel = nvrtc.Function("hopper_multiply", 0, None, 0)
    given = (kernel, 1, 384, 0, matrices, "bfloat16", Ragged())
    moving = Moving(*given, grow={RIGHT, OUT})

    def maps_of(one: Moving) -> bytes:
        start = -ctypes.addressof(one._memory) % ALIGNMENT
        return bytes(one._memory)[start : start + len(matrices) * BYTES]

    made = []
    for step, rows in enumerate((50, 50, 1, 70_001, 2**31 - 64, 3)):
        at = [At(256 * (step + place)) for place in (1, 2, 3)]
        encoder.encoded = 0
        moving.launch(7, At(16), at[0], at[1], at[2], rows=rows)
        made.append(encoder.encoded)
        anew = Moving(*given, grow={RIGHT, OUT})
        anew.launch(7, At(16), at[0], at[1], at[2], rows=rows)
        assert maps_of(moving) == maps_of(anew), rows
    again = 0 if beside == "alone" else 3
    first = 3 if beside == "by rows" else 3 + (3 if beside == "alone" else 1)
    assert made == [first, 0, again, again, again, again]


def test_a_batch_without_rows_is_left_to_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """A map cannot say that there are none: rows less one would be four thousand million."""
    encoder = Words(monkeypatch)
    matrices = [
        (place, maps.Matrix(256 * (1 + place), 64, 64, 128)) for place in (LEFT, RIGHT, OUT)
    ]
    kernel = nvrtc.Function("hopper_multiply", 0, None, 0)
    moving = Moving(kernel, 1, 384, 0, matrices, "bfloat16", Ragged(), grow={RIGHT, OUT})
    at = [At(256), At(512), At(768)]
    moving.launch(7, At(16), at[0], at[1], at[2], rows=9)
    moving.launch(7, At(16), at[0], at[1], at[2], rows=8)
    encoder.encoded = 0

    def refuse(*_: Any) -> tuple[Any, None]:
        return encoder.driver.CUresult.CUDA_ERROR_INVALID_VALUE, None

    with monkeypatch.context() as patch:
        patch.setattr(encoder.driver, "cuTensorMapEncodeTiled", refuse)
        with pytest.raises(DeviceError, match="tensor map of 0 x 64"):
            moving.launch(7, At(16), at[0], at[1], at[2], rows=0)
    moving.launch(7, At(16), at[0], at[1], at[2], rows=9)
    assert len(encoder.launched) == 3


def test_maps_of_ragged_products_are_told_how_tensors_lie_in_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = pytest.importorskip("torch")
    Encoder(monkeypatch)
    monkeypatch.setattr(nvrtc, "function", lambda *_, **__: nvrtc.Function("", 0, None, 0))
    units = SimpleNamespace(multi_processor_count=132)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: units)

    def empty(*sizes: int) -> Any:
        """Bfloat16 with 8 elements more than it shows in each row."""
        return torch.empty(*sizes[:-1], sizes[-1] + 8, dtype=torch.bfloat16)[..., : sizes[-1]]

    def told(moving: Moving) -> list[tuple[int, ...]]:
        """Columns, rows and bytes from row to row of every map."""
        facts = bytes(moving._memory)
        at = -ctypes.addressof(moving._memory) % ALIGNMENT
        size = struct.calcsize(Encoder.FACTS)
        every = (facts[at + BYTES * i :][:size] for i in range(3))
        return [struct.unpack(Encoder.FACTS, one)[1:4] for one in every]

    x, w, out = empty(50, 64), torch.empty(3, 64, 40, dtype=torch.bfloat16), empty(50, 40)
    assert told(hopper_rows.prepared(x, w, out, hopper_cuts.WHOLE)) == [
        (40, 192, 80),
        (64, 50, 144),
        (40, 50, 96),
    ]
    turned = torch.empty(3, 40, 64, dtype=torch.bfloat16).transpose(1, 2)
    assert told(hopper_rows.prepared(x, turned, out, hopper_cuts.WHOLE))[0] == (64, 120, 128)
    x, y, out = empty(50, 24), empty(50, 40), empty(3, 24, 40)
    found = told(hopper_depths.prepared(x.T, y, out))
    assert found == [(24, 50, 64), (40, 50, 96), (40, 72, 96)]


def test_a_map_recalled_is_the_map_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = Encoder(monkeypatch)
    matrices = [
        maps.Matrix(256 * place + shift, rows, 64, stride)
        for place, shift in ((3, 0), (7, 0), (9, 16), (11, 128))
        for rows in (5, 6)
        for stride in (128, 256)
    ]
    for dtype in ("bfloat16", "float16"):
        anew = []
        for matrix in matrices:
            maps._made.clear()
            anew.append(maps.encode([matrix], dtype)[0].copy())
        maps._made.clear()
        encoder.encoded = 0
        found = maps.encode([*matrices, *matrices[::-1]], dtype)
        assert found.ctypes.data % 64 == 0
        np.testing.assert_array_equal(found, [*anew, *anew[::-1]])
        assert encoder.encoded == 6  # 4 of rows and stride; 2 more where rows begin far
