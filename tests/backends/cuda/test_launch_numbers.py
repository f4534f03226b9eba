"""Launches of CUDA C++ with no GPU: blocks, threads, shared memory, macros and every parameter."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.support import conv_chains, whole_chains
from tests.support.launched import Recorder, fields, members
from tests.support.triton_proof import CUDA_H200
from tests.support.winograd_cases import CASES
from tilewright.backends.cuda.bits import launch
from tilewright.backends.cuda.conv import chain_launch, chain_plan, winograd_launch
from tilewright.backends.cuda.conv.chain import CHAIN
from tilewright.backends.cuda.conv.winograd_launch import Shape
from tilewright.backends.cuda.machine import nvrtc
from tilewright.engines.bits import BitProblem, BitWork
from tilewright.errors import OperandError

torch: Any = pytest.importorskip("torch")
TYPES = {"int32": torch.int32, "float32": torch.float32, "float16": torch.float16}
MOST_SHARED = 227 * 1024


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    made = Recorder()
    monkeypatch.setattr(nvrtc, "function", made)
    monkeypatch.setattr(launch, "_processors", lambda ordinal: 132)
    monkeypatch.setattr(launch, "encoded", lambda *key: repr(key).encode().ljust(128)[:128])
    return made


@pytest.mark.parametrize(
    ("header", "structure"),
    [
        ("bits_common.cuh", launch.Product),
        ("chain_layout.cuh", chain_launch.Chain),
        ("chain_layout.cuh", chain_launch.Strides),
        ("winograd_layout.cuh", winograd_launch.Winograd),
        ("winograd_layout.cuh", winograd_launch.Steps),
    ],
)
def test_parameters_are_those_of_the_kernels_source(header: str, structure: Any) -> None:
    assert fields(structure) == members(header, structure.__name__)


# Bits.


def bit_work(m: int, n: int, k: int, out: str = "int32", form: str = "xor") -> BitWork:
    """Operands in the host's memory, all of them; only where they lie is looked at."""
    problem = BitProblem(m, n, k, form, out)
    words = [launch.padded((rows, problem.words), torch.int64, "cpu") for rows in (m, n)]
    counts = [torch.zeros(rows, dtype=torch.int32) for rows in (m, n)]
    kind = TYPES.get(out, torch.int64)
    made = launch.padded((m, -(-n // 64) if out == "bits" else n), kind, "cpu")
    vectors = {name: torch.zeros(n) for name in ("scale", "shift")}
    if out == "bits":
        vectors = {"threshold": torch.zeros(n, dtype=torch.int32), "flip": torch.zeros(n).byte()}
    return BitWork(problem, *words, *counts, made, **vectors)


SIZES = [(1, 1, 1), (64, 128, 64), (65, 129, 65), (200, 300, 1000), (9000, 9000, 128)]


@pytest.mark.parametrize("form", ["xor", "and"])
@pytest.mark.parametrize("out", launch.OUT)
def test_bits_launch_a_block_a_tile_with_every_operand(
    recorder: Recorder, out: str, form: str
) -> None:
    number = {"int32": 0, "float32": 1, "float16": 2, "bits": 3}[out]
    macros = {"OUT": number, "FORM": {"xor": 4, "and": 1}[form]}
    for m, n, k in SIZES:
        work = bit_work(m, n, k, out, form)
        for prepare, side in ((launch.prepare_popc, 64), (launch.prepare_mma, 128)):
            prepare(work)()
            blocks, threads, (given,) = recorder.runs[-1]
            assert (blocks, threads) == (-(-m // side) * -(-n // side), 256)
            assert (given.m, given.n, given.k, given.words) == (m, n, k, -(-k // 64))
            pitches = (work.a.stride(0), work.b.stride(0))
            assert (given.pitch_a, given.pitch_b) == pitches
            assert given.pitch_out == work.out.stride(0) * (2 if out == "bits" else 1)
            names = ("a", "b", "a_counts", "b_counts", "out", *launch_vectors(work))
            for name in names:
                assert getattr(given, name) == getattr(work, name).data_ptr(), name
            absent = {"scale", "shift", "threshold", "flip"}.difference(names)
            assert all(getattr(given, name) is None for name in absent)
        stages = {"STAGES": 4}
        assert recorder.asked[-2:] == [
            ("bits_popc", macros, 0),
            # A stage: 128 rows of each operand, 64 bytes of each.
            ("bits_mma", macros | stages, 4 * (128 + 128) * 64),
        ]


def launch_vectors(work: BitWork) -> tuple[str, ...]:
    return ("threshold", "flip") if work.problem.out == "bits" else ("scale", "shift")


@pytest.mark.parametrize("out", launch.OUT)
def test_hoppers_blocks_are_whole_clusters_no_more_than_there_are_processors(
    recorder: Recorder, out: str
) -> None:
    for m, n, k in SIZES:
        work = bit_work(m, n, k, out)
        launch.prepare_wgmma(work)()
        blocks, threads, (map_a, map_b, map_out, given) = recorder.runs[-1]
        _, macros, shared = recorder.asked[-1]
        cluster, rows, stages = macros["CLUSTER"], macros["BN"], macros["STAGES"]
        assert (cluster, rows) == (1 if m <= 64 else 2, 128 if n <= 128 else 256)
        tiles = -(-m // (64 * cluster)) * -(-n // rows)
        assert (blocks, threads) == (cluster * min(tiles, 132 // cluster), 3 * 128)
        needed = stages * (64 + rows) * 128 + 2 * stages * 8
        needed += 2 * 4 * rows * (3 if out in ("float16", "float32") else 1)
        needed += 0 if out == "bits" else 8 * macros["BUFFERS"] * 2048
        assert needed <= shared <= needed + 512
        fewer = {128: 7, 256: 4}[rows]
        assert stages == (fewer + 1 if out == "bits" else fewer)
        assert shared <= MOST_SHARED
        words = -(-k // 64)
        boxes = ((work.a, map_a, 64), (work.b, map_b, rows // cluster))
        for operand, found, high in boxes:
            key = (words * 8, operand.shape[0]), operand.stride(0) * 8, (128, high)
            assert found.opaque == text_of("UINT8", operand.data_ptr(), *key)
        assert macros["COPY_OUT"] == (out != "bits")
        size = work.out.element_size()
        key = work.out.data_ptr(), (n, m), work.out.stride(0) * size, (128 // size, 16)
        assert map_out.opaque == (b"" if out == "bits" else text_of(out.upper(), *key))
        assert given.out == work.out.data_ptr()


def text_of(*key: Any) -> bytes:
    return repr(key).encode().ljust(128)[:128]


def test_strips_are_wide_where_the_cache_does_not_hold_both_operands() -> None:
    def group(m: int, n: int, words: int) -> int:
        return launch.shape_of(BitProblem(m, n, 64 * words)).group

    assert group(2048, 2048, 1024) == 4, "32 MiB of words"
    assert group(2048, 2049, 1024) == group(16384, 16384, 256) == 8


@pytest.mark.parametrize("kind", [torch.int64, torch.int32, torch.float16])
def test_padded_rows_begin_at_16_bytes_and_take_no_more_than_that(kind: Any) -> None:
    step = 16 // kind.itemsize
    for width in (1, step - 1, step, step + 1, 5 * step):
        made = launch.padded((2, 3, width), kind, "cpu")
        pitch = -(-width // step) * step
        assert (tuple(made.shape), made.stride()) == ((2, 3, width), (3 * pitch, pitch, 1))
        assert made.untyped_storage().nbytes() == 6 * pitch * kind.itemsize


@pytest.mark.parametrize("engine", [launch.prepare_wgmma, launch.prepare_mma])
def test_rows_that_do_not_begin_at_16_bytes_are_copied_and_others_are_not(
    recorder: Recorder, engine: Any
) -> None:
    work = bit_work(70, 80, 6 * 64)
    plain = torch.arange(70 * 9).reshape(70, 9)
    store = torch.arange(70 * 8 + 1)[1:].reshape(70, 8)
    cases = ((plain[:, :6], True), (store[:, :6], True), (plain.new_ones(70, 8)[:, 2:], False))
    for a, is_copied in cases:
        engine(replace(work, a=a))()
        given = recorder.runs[-1][2][-1]
        assert (given.a != a.data_ptr()) is is_copied
        assert given.a % 16 == given.pitch_a % 2 == 0
        copy = launch.aligned(a)
        assert (copy is a) is not is_copied
        assert torch.equal(copy, a)
    launch.prepare_popc(replace(work, a=plain[:, :6]))()
    given = recorder.runs[-1][2][-1]
    assert (given.a, given.pitch_a) == (plain.data_ptr(), 9)


def test_a_result_is_dense_and_leaves_by_the_copy_engine_where_its_rows_allow(
    recorder: Recorder,
) -> None:
    work = bit_work(70, 80, 100)
    wide = torch.zeros(70, 84, dtype=torch.int32)
    odd = torch.zeros(70, 82, dtype=torch.int32)
    for out, copies in ((wide[:, :80], 1), (wide[:, 4:], 1), (wide[:, 1:81], 0), (odd[:, 2:], 0)):
        launch.prepare_wgmma(replace(work, out=out))()
        assert recorder.asked[-1][1]["COPY_OUT"] == copies
    for prepare in (launch.prepare_wgmma, launch.prepare_mma, launch.prepare_popc):
        flat = torch.zeros(70 * 80, dtype=torch.int32)
        prepare(replace(work, out=flat.view(7, 10, 80)))()
        given = recorder.runs[-1][2][-1]
        assert (given.out, given.pitch_out) == (flat.data_ptr(), 80)
        for wrong in (flat.view(80, 70).T, torch.zeros(7, 10, 81)[:, :, :80]):
            with pytest.raises(OperandError, match="dense, row-major"):
                prepare(replace(work, out=wrong))
    column = torch.zeros(70, 3, dtype=torch.int32).T[1:2].T  # one column: its stride says nothing
    launch.prepare_popc(replace(bit_work(70, 1, 100), out=column.as_strided((70, 1), (3, 7))))()
    assert recorder.runs[-1][2][-1].pitch_out == 3


# Chains of convolutions.


def values(parameters: Any, names: str) -> list[Any]:
    return [getattr(parameters, name) for name in names.split()]


def steps(strides: Any) -> tuple[int, ...]:
    return strides.image, strides.channel, strides.row, strides.column


@pytest.mark.parametrize("units", [3, 132])
def test_a_chains_parts_get_pictures_planes_and_residuals(recorder: Recorder, units: int) -> None:
    size = (2, 9, 150)
    clip = conv_chains.Activation("clip", -0.5, 0.75)
    work = conv_chains.chain((20, 32, 16), size, activation=clip, adds=True)
    part = chain_plan.Part(work.layers, 0, False)
    x, out, (added,) = conv_chains.drawn(work)
    last = x.contiguous(memory_format=torch.channels_last)
    planes = chain_launch.planes(work, 20, x)
    blocks = -(-150 // (64 - 4))
    for given, strides in ((planes, steps(planes.strides)), (last, (27000, 8, 3000, 20))):
        call, held = chain_launch.prepared("chain_wgmma", part, work, given, out, added, units)
        kernel, grid, threads, arguments = call
        (found,) = arguments._values
        assert kernel is recorder
        assert (grid, threads) == (min(2 * 9 * blocks, units), 128 * 3)
        assert held[:3] == (given, out, added)
        pointer = given.tensor.data_ptr() if given is planes else given.data_ptr()
        assert values(found, "x out added blob") == [
            pointer,
            out.data_ptr(),
            added.data_ptr(),
            held[3].data_ptr(),
        ]
        assert steps(found.at_x) == strides
        assert steps(found.at_out) == tuple(out.stride())
        assert steps(found.at_added) == tuple(added.stride())
        assert values(found, "height width strips counted") == [9, 150, blocks, 2 * blocks * 13]
        assert [*found.low][:4] == [0, -0.5, 0, 0]
        assert [*found.high][:4] == [0, 0.75, 0, 0]
        name, macros, shared = recorder.asked[-1]
        assert (name, shared) == ("chain_wgmma", part.places["SHARED"])
        assert macros == dict(chain_plan.defines(part, "float16", pairs=False))


def test_a_first_part_reads_the_picture_as_it_lies_and_gives_planes_in_pairs(
    recorder: Recorder,
) -> None:
    work = whole_chains.chain((1, 32, 32, 4), (1, 20, 30))
    part = chain_plan.Part(work.layers[:2], 1, True)
    x = torch.zeros(1, 1, 20, 30)
    out = chain_launch.planes(work, 32, x)
    assert out.tensor.dtype == torch.float16
    call, held = chain_launch.prepared("chain_mma", part, work, x, out, None, 132)
    (found,) = call[3]._values
    assert (call[1], call[2]) == (20, 128 * 2)
    assert steps(found.at_x) == (600, 600, 30, 1)
    assert (steps(found.at_out), found.out) == (steps(out.strides), out.tensor.data_ptr())
    assert (found.added, steps(found.at_added)) == (None, (0, 0, 0, 0))
    assert recorder.asked[-1][1]["PAIRS"] == 1
    whole = work.layers[0].whole
    assert found.zero == 7
    assert found.taken == np.float32(0.01)
    assert found.step[0] == np.float32(whole.step)
    assert held[3].dtype == torch.uint8


def test_halves_stay_what_they_are_between_parts() -> None:
    work = conv_chains.chain((20, 32, 16), (1, 4, 5), "bfloat16")
    assert chain_launch.planes(work, 20, torch.zeros(1).bfloat16()).tensor.dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("shuffle", "shape", "strides", "paired"),
    [
        (1, (1, 8, 4, 6), (192, 1, 48, 8), True),
        (1, (1, 8, 4, 6), (193, 1, 48, 8), False),  # an odd step from image to image,
        (1, (1, 8, 4, 6), (192, 1, 49, 8), False),  # row to row,
        (1, (1, 8, 4, 6), (300, 1, 54, 9), False),  # pixel to pixel
        (1, (1, 8, 4, 6), (384, 2, 96, 16), False),  # channels apart
        (2, (1, 2, 8, 12), (192, 96, 12, 1), True),
        (2, (1, 2, 8, 12), (192, 97, 12, 1), False),
        (2, (1, 2, 8, 12), (384, 192, 24, 2), False),
        (3, (1, 2, 12, 18), (432, 216, 18, 1), False),
    ],
)
def test_outputs_are_pairs_where_every_step_keeps_them_in_one_word(
    shuffle: int, shape: tuple[int, ...], strides: tuple[int, ...], paired: bool
) -> None:
    outputs = shape[1] * shuffle**2
    part: Any = SimpleNamespace(layers=[SimpleNamespace(outputs=outputs, shuffle=shuffle)])
    for kind in (torch.float16, torch.float32):
        out = torch.zeros(2000, dtype=kind)
        assert chain_launch.paired(out.as_strided(shape, strides), part) is paired
        assert not chain_launch.paired(out[1:].as_strided(shape, strides), part)
    odd: Any = SimpleNamespace(layers=[SimpleNamespace(outputs=outputs + 1, shuffle=shuffle)])
    assert not chain_launch.paired(out.as_strided(shape, strides), odd)


@pytest.mark.parametrize("readable", [chain_launch.readable, winograd_launch.wide])
def test_channels_are_read_by_16_bytes_where_every_step_is_a_multiple(readable: Any) -> None:
    by, kind = (8, torch.float16) if readable is chain_launch.readable else (4, torch.float32)
    store = torch.zeros(4000, dtype=kind)
    good = (40 * by, 1, 8 * by, 2 * by)
    assert readable(store.as_strided((2, by, 4, 3), good))
    for place, wrong in ((0, 41 * by + 1), (1, 2), (2, 8 * by + by // 2), (3, 2 * by + 1)):
        strides = [*good]
        strides[place] = wrong
        assert not readable(store.as_strided((2, by, 4, 3), strides)), place
    assert not readable(store[by // 2 :].as_strided((2, by, 4, 3), good)), "begins in between"
    assert readable(store[by:].as_strided((2, by, 4, 3), good))
    assert not readable(store.as_strided((2, by + 1, 4, 3), good)), "a channel too many"


# Winograd.


def test_winograds_blocks_are_as_many_as_there_is_work_and_units(recorder: Recorder) -> None:
    work = CASES["odd pads, shuffled"]
    (layer,) = work.layers
    x, out, _ = conv_chains.drawn(work)
    for shape, units in ((Shape(4), 132), (Shape(2, 4), 132), (Shape(2), 2)):
        (kernel, blocks, threads, arguments), held = winograd_launch.prepared(
            layer, shape, x, out, None, units
        )
        (found,) = arguments._values
        assert kernel is recorder
        assert threads == {2: 8 * 32, 4: 12 * 32}[shape.tile]
        rows, columns = layer.sums(7, 9)
        down, across = -(-rows // (4 * shape.tile)), -(-columns // (8 * shape.tile))
        count = down * across * -(-36 // {2: 64, 4: 32}[shape.tile])
        assert (blocks, found.count) == (min(units, count), count)
        assert values(found, "down across rows columns") == [down, across, rows, columns]
        assert values(found, "top left height width") == [0, 2, 7, 9]
        assert values(found, "channels outputs chunks") == [24, 36, -(-24 // shape.chunk)]
        assert (found.added, found.slopes) == (None, None)
        assert steps(found.at_added) == (0, 0, 0, 0)
        assert (steps(found.at_x), steps(found.at_out)) == (tuple(x.stride()), tuple(out.stride()))
        assert held[1:] == (x, out, None)
        name, macros, shared = recorder.asked[-1]
        assert (name, shared) == ("winograd", shape.shared)
        assert (macros["TILE"], macros["CHUNK"], macros["SHUFFLE"]) == (shape.tile, shape.chunk, 3)


def test_a_pictures_last_pixel_tells_whether_32_bits_count_it() -> None:
    def far(*strides: int) -> bool:
        shape = (3, 2, 2, 2)
        return winograd_launch.far_apart(
            torch.empty_strided(shape, (1 << 40, *strides), device="meta")
        )

    assert not far(1, 2, (1 << 31) - 4)
    assert far(1, 2, (1 << 31) - 3)
    assert CHAIN.machine(CUDA_H200).shared == MOST_SHARED
