"""What the CUDA back end decides, with no GPU: what is missing, how batches lie, who takes what."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.support.cases import Case, operands
from tests.support.triton_proof import CUDA_H200, work_of
from tilewright.arrays.addresses import Columns, row_major
from tilewright.backends.cuda import choose
from tilewright.backends.cuda.machine import arrays, driver
from tilewright.backends.cuda.machine.arrays import element_type
from tilewright.backends.cuda.machine.tables import records
from tilewright.backends.cuda.ragged import engine as ragged
from tilewright.backends.cuda.ragged import hopper_rows as hopper_ragged
from tilewright.backends.cuda.ragged import tiles as ragged_tiles
from tilewright.backends.cuda.tile_seconds import shapes_of
from tilewright.backends.cuda.tiled.engine import TritonGrouped, TritonWhole
from tilewright.backends.cuda.tiled.layouts import Group, codes, kinds
from tilewright.backends.cuda.vendor.engine import VendorBlas
from tilewright.backends.cuda.work import Moving, Work
from tilewright.errors import (
    ArgumentError,
    DeviceError,
    DeviceWarning,
    DtypeError,
    KernelError,
    OperandError,
)
from tilewright.facts.dtypes import ITEMSIZE
from tilewright.facts.verdict import Proposal, Rejected


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """What was found of this machine is forgotten before and after."""
    for known in (driver.missing, driver.found):
        known.cache_clear()
    yield
    for known in (driver.missing, driver.found):
        known.cache_clear()


# What is missing is named.


def test_without_a_driver_there_are_no_devices_and_torch_is_not_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(driver, "_has_driver", lambda: False)
    monkeypatch.setitem(sys.modules, "torch", None)  # importing it would fail
    assert driver.found() == ()
    with pytest.raises(DeviceError, match=r"no NVIDIA or AMD driver .*tilewright\[cuda\]"):
        driver.need()


@pytest.mark.parametrize(
    ("package", "have", "said"),
    [
        ("torch", "2.10.1+cu130", "torch 2.10.1+cu130 is installed; accepted is torch>=2.11"),
        ("triton", "3.5.0", "triton 3.5.0 is installed; accepted is triton>=3.6,<3.10"),
        ("triton", "3.10.0", "triton 3.10.0 is installed; accepted is triton>=3.6,<3.10"),
        ("torch", None, "torch is not installed; accepted is torch>=2.11"),
    ],
)
def test_a_package_that_is_absent_too_old_or_too_new_is_named(
    package: str, have: str | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib.metadata

    real = importlib.metadata.version
    monkeypatch.setattr(driver, "_has_driver", lambda: True)
    monkeypatch.setattr(driver, "find_spec", lambda name: (name, have) != (package, None) or None)
    fits = {"torch": "2.12.0", "triton": "3.9.1", package: have}
    monkeypatch.setattr(importlib.metadata, "version", lambda name: fits.get(name) or real(name))
    assert driver.missing() == said
    assert driver.found() == ()


def test_a_package_that_is_broken_is_named_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "_has_driver", lambda: True)
    monkeypatch.setattr(driver, "_unfit", lambda package: None)
    monkeypatch.setitem(sys.modules, "torch", None)  # importing it fails
    assert str(driver.missing()).startswith("torch cannot be imported (")
    assert driver.found() == ()


def test_sizes_on_the_device_name_what_is_missing_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "missing", lambda: "triton is not installed")
    there = SimpleNamespace(is_cuda=True, shape=(2, 3, 4))
    with pytest.raises(DeviceError, match="triton is not installed"):
        ragged.rows(there, there, None, None, None, "ieee", clear=False)
    with pytest.raises(DeviceError, match="triton is not installed"):
        ragged.depths(there, there, None, None, "ieee")


class Pretended:
    """A tensor of float32 on a GPU, at an address."""

    is_cuda, dtype, shape, device = True, "torch.float32", (2, 3), SimpleNamespace(index=0)

    def __init__(self, address: int) -> None:
        self.data_ptr = lambda: address
        self.stride, self.dim = lambda: (3, 1), lambda: 2


def test_an_address_within_an_element_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "missing", lambda: None)
    assert arrays.view(Pretended(4100), "a").offset == 1025
    with pytest.raises(OperandError, match="a: begins or steps between elements of 4 bytes"):
        arrays.view(Pretended(4098), "a")
    with pytest.raises(OperandError, match=r"a\[1\]: begins or steps between elements"):
        arrays.columns([Pretended(4096), Pretended(4099)], "a")


def test_dtypes_go_by_name_however_they_are_spelled() -> None:
    torch = pytest.importorskip("torch")
    assert element_type(torch.bfloat16) == element_type("bfloat16")
    assert element_type(np.float32) == element_type(np.dtype("float32")) == element_type("float32")
    with pytest.raises(DtypeError, match="dtype='int8'"):
        element_type("int8")


# How a batch lies decides what is compiled in.


def batch(*cases: Case) -> Work:
    return work_of([operands(case, seed) for seed, case in enumerate(cases)])


def grouped(work: Work) -> list[Group]:
    """The launches of one tile a problem, all of one shape."""
    problem = np.arange(len(work.m), dtype=np.int32)
    none = np.zeros(len(work.m), np.bool_)
    return kinds(work, codes(work), problem, np.zeros(len(work.m), np.int64), none)[1]


def test_problems_that_lie_alike_share_a_launch() -> None:
    (one,) = grouped(batch(Case(5, 7, 3), Case(9, 4, 2), Case(1, 1, 1), Case(3, 1, 8)))
    assert (one.a_along, one.b_along, one.c_along, one.wide, one.count) == (0, 1, 0, 1, 4)


def test_transposes_make_launches_of_their_own() -> None:
    first, second = grouped(batch(Case(50, 70, 30), Case(9, 4, 2, a="F", b="F", out="F")))
    assert (first.a_along, first.b_along, first.c_along) == (0, 1, 0)
    assert (second.a_along, second.b_along, second.c_along) == (1, 0, 1)


def test_of_many_layouts_the_one_with_most_work_keeps_its_own_launch() -> None:
    work = batch(
        Case(50, 70, 30),
        Case(9, 4, 2, a="F"),
        Case(9, 4, 2, b="F"),
        Case(9, 4, 2, out="F"),
        Case(9, 4, 3, a="strided"),
    )
    first, rest = grouped(work)
    assert (first.a_along, first.b_along, first.count) == (0, 1, 1)
    assert (rest.a_along, rest.b_along, rest.c_along, rest.wide, rest.count) == (2, 2, 2, 1, 4)


def dense(m: int, n: int, k: int, dtype: str, base: int = 0, pad: int = 0) -> Work:
    """One product whose rows are `pad` elements longer than need be, at this address."""

    def column(value: int) -> Any:
        return np.array([value], np.int64)

    def lies(rows: int, cols: int) -> Columns:
        item = ITEMSIZE[dtype]
        return Columns(*map(column, (base, rows, cols, item * (cols + pad), item)))

    parts: Any = {"a": lies(m, k), "b": lies(k, n), "c": lies(m, n)}
    return Work(ordinal=0, **parts, alpha=np.ones(1), beta=np.zeros(1), dtype=dtype)


@pytest.mark.parametrize(
    ("work", "wide"),
    [
        (dense(64, 64, 64, "float16"), 8),
        (dense(64, 64, 64, "bfloat16", pad=8), 8),
        (dense(64, 64, 64, "float32"), 4),
        (dense(64, 64, 64, "float64"), 2),
        (dense(64, 64, 64, "float16", base=8), 1),
        (dense(64, 64, 64, "float16", pad=1), 1),
        (dense(64, 63, 64, "float16"), 1),
        (dense(64, 64, 61, "float16"), 1),
    ],
)
def test_wide_loads_need_bases_rows_and_extents_of_16_bytes(work: Work, wide: int) -> None:
    assert [group.wide for group in grouped(work)] == [wide]


def test_the_few_that_could_be_loaded_wide_stay_with_the_many_that_cannot() -> None:
    (one,) = grouped(batch(Case(50, 70, 30), Case(8, 8, 8), Case(37, 41, 29)))
    assert (one.wide, one.count) == (1, 3)


def test_offsets_past_two_to_the_31_elements_are_counted_in_64_bits() -> None:
    assert grouped(dense(64, 64, 64, "float16"))[0].near
    assert not grouped(dense(64, 64, 64, "float16", pad=2**24))[0].near
    both = Columns(*(np.array([x]) for x in (0, 64, 64, 12_000_000, 11_999_998)))
    assert not grouped(replace(dense(64, 64, 64, "float16"), c=both))[0].near


def test_shapes_fit_the_local_memory_of_the_device() -> None:
    large = shapes_of("float16", CUDA_H200, wide=True)
    small = shapes_of("float16", replace(CUDA_H200, local_memory=64 * 1024), wide=True)
    assert (large[0].m, large[0].n) == (128, 256)
    assert small == large[2:]


@pytest.mark.parametrize("kib", [227, 163, 99, 64, 32])
@pytest.mark.parametrize("itemsize", [2, 4, 8])
@pytest.mark.parametrize("rows", [10, 100_000])
def test_shapes_for_sizes_on_the_device_fit_too(rows: int, itemsize: int, kib: int) -> None:
    shape = ragged_tiles.tile_of(itemsize, rows, 8, kib * 1024)
    assert shape.fits(itemsize, kib * 1024)
    if kib == 227:
        assert shape.stages == ragged_tiles.tile_of(itemsize, rows, 8, 2**30).stages


def test_a_record_is_sixteen_words_and_minus_zero_is_zero() -> None:
    work = replace(dense(3, 5, 7, "float32", base=4096), beta=np.array([-0.0]))
    (record,) = records(work)
    assert record[4:13].tolist() == [3, 5, 7, 7, 1, 5, 1, 5, 1]
    assert record[13].view(np.float64) == 1
    assert record[14] == 0


# Who takes what.


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"activation": "gelu"}, "passes of their own"),
        ({"precision": "fp32x", "dtype": "float16"}, "has no fp32x"),
        ({"alpha": np.zeros(1)}, "nothing to multiply"),
        ({"a": Columns(*(np.array([x]) for x in (0, 64, 0, 4, 4)))}, "nothing to multiply"),
        ({"a": Columns(*(np.array([x]) for x in (0, 64, 64, 512, 8)))}, "neither dense rows"),
    ],
)
def test_the_vendors_blas_says_what_it_does_not_take(change: dict[str, Any], why: str) -> None:
    answer = VendorBlas().why_not(replace(dense(64, 64, 64, "float32"), **change), CUDA_H200)
    assert why in str(answer)


def test_equal_products_at_equal_distances_go_to_the_vendor_unequal_ones_do_not() -> None:
    work = dense(64, 64, 64, "float32")

    def three(step: int) -> Columns:
        at = np.array([0, 16384, 16384 + step], np.int64)
        return row_major(np.full(3, 64), np.full(3, 64), at, 4)

    thrice = {"alpha": np.ones(3), "beta": np.zeros(3)}
    even = replace(work, **thrice, **{name: three(16384) for name in "abc"})
    apart = replace(even, b=three(20480))
    words = [VendorBlas().propose(one, CUDA_H200).reason for one in (even, apart)]
    assert words == ["3 equal products", "3 products, a call each"]


def test_little_unlike_products_are_planned_until_quick_enough_alike_ones_in_full() -> None:
    """The first engine that is quick enough may need a table of what a library takes whole."""
    work = dense(16, 16, 16, "float32")
    side = np.full(5000, 16)
    at = row_major(side, side, np.arange(5000) * 1024, 4)
    scalars = {"alpha": np.ones(5000), "beta": np.zeros(5000)}
    alike = replace(work, **scalars, **dict.fromkeys("abc", at))
    unlike = replace(alike, c=replace(at, rows=np.where(np.arange(5000) == 7, 15, 16)))
    assert choose._unsorted(alike).enough == 0
    assert choose._unsorted(unlike).enough > 0
    assert choose._unsorted(alike).order == choose._unsorted(unlike).order == "given"


def test_a_few_unlike_products_go_to_the_vendor_in_a_call_each_many_do_not() -> None:
    few = batch(*[Case(900, 64, 300 + i) for i in range(32)])
    assert "a call each" in VendorBlas().propose(on_gpu(few), CUDA_H200).reason
    many = batch(*[Case(9, 6, 3 + i) for i in range(33)])
    assert "keeps the host busy" in str(VendorBlas().why_not(on_gpu(many), CUDA_H200))


def on_gpu(work: Work) -> Work:
    """The same addresses, taken for those of a GPU."""
    return replace(work, ordinal=0)


def test_a_tall_product_among_small_ones_is_predicted_fastest_at_the_vendors() -> None:
    """The inputs of a graph network on DBLP: 0.22 ms in four calls, 0.46 in our tiles (H200)."""
    parts = [dense(m, 64, k, "float32") for m, k in ((4057, 334), (14328, 4231), (7723, 50))]
    names = ("alpha", "beta")
    columns: Any = {name: np.concatenate([getattr(one, name) for one in parts]) for name in names}
    lies: Any = {
        name: Columns(
            *(
                np.concatenate([getattr(getattr(one, name), field) for one in parts])
                for field in ("address", "rows", "cols", "row", "col")
            )
        )
        for name in "abc"
    }
    assert choose.judge(replace(parts[0], **columns, **lies), CUDA_H200).best.engine == "vendor"


def test_where_alpha_is_zero_nothing_is_multiplied_by_any_engine() -> None:
    half = replace(dense(2048, 2048, 2048, "bfloat16"), alpha=np.zeros(1))
    verdict = choose.judge(half, CUDA_H200)
    deep = choose.judge(dense(2048, 2048, 2048, "bfloat16"), CUDA_H200)
    assert Rejected("vendor", "nothing to multiply") in verdict.refusals
    assert (verdict.best.seconds or 0.0) < (deep.best.seconds or 0.0)


def test_a_large_dense_product_is_predicted_fastest_at_the_vendors() -> None:
    verdict = choose.judge(dense(8192, 8192, 8192, "bfloat16"), CUDA_H200)
    assert verdict.best.engine in ("vendor", "hopper")
    assert {"vendor", "triton_grouped"} <= {found.engine for found in verdict.proposals}


def test_what_would_be_cut_along_k_can_also_run_whole_without_scratch() -> None:
    deep = batch(Case(20, 18, 9000))
    cut, whole = (engine.propose(deep, CUDA_H200) for engine in (TritonGrouped(), TritonWhole()))
    assert cut.scratch > 0
    assert whole.scratch == 0
    assert (cut.seconds or 0.0) < (whole.seconds or 0.0)
    with pytest.raises(KernelError, match="nothing is cut"):
        TritonWhole().propose(batch(Case(20, 18, 9)), CUDA_H200)


def test_an_engine_that_does_not_exist_or_cannot_is_refused_by_name() -> None:
    work = dense(64, 64, 64, "float32")
    with pytest.raises(KernelError, match=r"kernel='nosuch': 'cuda:0' knows .*'triton_grouped'"):
        choose.judge(work, CUDA_H200, "nosuch")
    with pytest.raises(KernelError, match=r"kernel='vendor': .*passes of their own"):
        choose.judge(replace(work, activation="gelu"), CUDA_H200, "vendor")


def test_a_precision_that_no_engine_has_for_a_dtype_is_refused() -> None:
    with pytest.raises(ArgumentError, match="precision='fp32x': no engine"):
        choose.judge(replace(dense(64, 64, 64, "float64"), precision="fp32x"), CUDA_H200)


def test_fp32x_where_a_device_has_no_wgmma_is_computed_in_ieee_float32_and_said() -> None:
    amd = replace(CUDA_H200, version="gfx90a", features=frozenset({"fp16", "bf16", "fp64"}))
    work = replace(dense(64, 64, 64, "float32"), precision="fp32x")
    answers = {found.engine: found for found in choose.judge(work, amd).proposals}
    plain = {
        found.engine: found
        for found in choose.judge(replace(work, precision="ieee"), amd).proposals
    }
    assert {"vendor", "triton_grouped"} <= set(answers)
    for name, found in answers.items():
        assert "in IEEE float32" in found.reason
        assert found.seconds == plain[name].seconds


def test_tf32_where_a_device_has_none_is_computed_exactly_and_said() -> None:
    amd = replace(CUDA_H200, version="gfx90a", features=frozenset({"fp16", "bf16", "fp64"}))
    answer = TritonGrouped().propose(replace(dense(64, 64, 64, "float32"), precision="tf32"), amd)
    assert "gfx90a has no tf32" in answer.reason


def test_a_dtype_that_a_device_lacks_is_refused_as_such() -> None:
    turing = replace(CUDA_H200, version="sm_75", features=frozenset({"fp16", "fp64"}))
    work = replace(dense(64, 64, 64, "bfloat16"), activation="gelu")
    with pytest.raises(DtypeError, match=r"dtype='bfloat16'.*has no bfloat16"):
        choose.judge(work, turing)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({}, None),
        ({"device": "gfx90a"}, "needs wgmma"),
        ({"x": (0, 1)}, "rows of x or out lie in one place"),
        ({"out": (0, 1)}, "rows of x or out lie in one place"),
        ({"x": (65, 1)}, "multiples of 16 bytes"),
        ({"out": (2**31, 1)}, "2^31 or more"),
    ],
)
def test_the_hopper_kernel_of_ragged_rows_says_what_it_does_not_take(
    change: dict[str, Any], why: str | None
) -> None:
    torch = pytest.importorskip("torch")
    amd = replace(CUDA_H200, version="gfx90a", features=frozenset({"fp16", "bf16", "fp64"}))
    here = amd if "device" in change else CUDA_H200

    def lies(strides: tuple[int, ...], *shape: int) -> Any:
        step = lambda axis=None: strides if axis is None else strides[axis]  # noqa: E731
        return SimpleNamespace(
            shape=shape,
            stride=step,
            dtype=torch.bfloat16,
            device=SimpleNamespace(index=0),
            data_ptr=lambda: 4096,
        )

    x, out = lies(change.get("x", (64, 1)), 100, 64), lies(change.get("out", (32, 1)), 100, 32)
    said = hopper_ragged.why_not(x, lies((64 * 32, 32, 1), 4, 64, 32), out, None, here)
    assert said is None if why is None else why in str(said)


class Said:
    """An engine that proposes what it was told, and notes that it was asked."""

    def __init__(self, name: str, seconds: float, error: Exception | None = None) -> None:
        self.name, self.seconds, self.error = name, seconds, error
        self.asked = 0

    def why_not(self, work: Work, device: Any) -> None:
        self.asked += 1

    def least(self, work: Work, device: Any) -> float:
        return 0.0

    def propose(self, work: Work, device: Any) -> Proposal:
        return Proposal(self.name, device, self.seconds, "", decisions=())

    def move(self, proposal: Proposal, work: Work) -> Moving:
        if self.error is not None:
            raise self.error
        return Moving(lambda stream, places: None, 0)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    calls = SimpleNamespace(_cuda_getDevice=lambda: 0, _cuda_getCurrentRawStream=lambda at: 0)
    cuda = SimpleNamespace(device=lambda at: nullcontext())
    stand_in = SimpleNamespace(_C=calls, cuda=cuda, OutOfMemoryError=torch.OutOfMemoryError)
    monkeypatch.setattr(driver, "need", lambda: stand_in)
    monkeypatch.setattr(choose.nvrtc, "enter", lambda at: False)


@pytest.mark.usefixtures("here")
def test_little_work_takes_the_first_engine_that_is_done_before_the_host_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    quick, quicker = Said("quick", 0.9e-6), Said("quicker", 0.1e-6)
    monkeypatch.setattr(choose, "engines", lambda: (quick, quicker))
    assert choose.move(dense(16, 16, 16, "float32"), CUDA_H200).engine == "quick"
    assert (quick.asked, quicker.asked) == (1, 0)
    much = dense(4096, 4096, 4096, "float32")
    assert choose.move(much, CUDA_H200).engine == "quicker"
    slow = Said("slow", 1.0)
    monkeypatch.setattr(choose, "engines", lambda: (slow, quicker))
    assert choose.move(dense(16, 16, 16, "float32"), CUDA_H200).engine == "quicker"


@pytest.mark.usefixtures("here")
def test_where_the_first_quick_engine_cannot_be_had_every_other_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken, other = Said("broken", 0.5e-6, DeviceError("no compiler")), Said("other", 1.0)
    monkeypatch.setattr(choose, "engines", lambda: (broken, other))
    with pytest.warns(DeviceWarning, match="broken cannot be used here"):
        assert choose.move(dense(16, 16, 16, "float32"), CUDA_H200).engine == "other"
