"""The CUDA back end on a GPU: the one case list, streams, graphs, bad input. Needs a GPU.

What needs none is in test_triton_interpreter.py, test_triton_code.py and test_cuda_engines.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tilewright
from tests.support.cases import CASES, Case, operands
from tests.support.checks import assert_rest_untouched, assert_right
from tests.support.gpu_arrays import OnGpu, send, why_no_gpu
from tilewright import RaggedBatch, grouped_matmul, matmul, plan_grouped
from tilewright.backends.cuda import tile_seconds
from tilewright.backends.cuda.tiled import simt
from tilewright.errors import (
    ArgumentError,
    DeviceWarning,
    DtypeError,
    KernelError,
    OperandError,
    OverlapError,
    ShapeError,
)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(why_no_gpu() is not None, reason=f"no GPU: {why_no_gpu()}"),
]
torch: Any = pytest.importorskip("torch")
KINDS = ("torch", "cupy")


def takes(case: Case, kind: str) -> bool:
    """Whether this kind of array can be laid out so: torch has no steps backwards."""
    return kind == "cupy" or "reversed" not in (case.a, case.b, case.out)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_case_is_right_on_a_gpu(case: Case, kind: str) -> None:
    if kind == "cupy":
        pytest.importorskip("cupy")
    if not takes(case, kind):
        pytest.skip("torch has no negative strides")
    here = send(operands(case), kind)
    result = matmul(here.a, here.b, out=here.out, **here.options)
    assert result is here.out
    given = here.fetch()
    assert_right(given.out, given)
    assert_rest_untouched(given)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_case_is_right_by_our_own_kernels(case: Case) -> None:
    if not takes(case, "torch"):
        pytest.skip("torch has no negative strides")
    here = send(operands(case))
    matmul(here.a, here.b, out=here.out, kernel="triton_grouped", **here.options)
    given = here.fetch()
    assert_right(given.out, given)
    assert_rest_untouched(given)


def edges(dtype: str) -> list[Case]:
    """Sizes one off, on, and one past every tile, and long products that are cut along k."""
    found = []
    for side in (16, 32, 64, 128):
        for off in (-1, 0, 1):
            found += [Case(side + off, side + off, 9), Case(side + off, 3, 70)]
            found += [Case(2, side + off, 5, b="F"), Case(side, side, side + off, a="F")]
    found += [Case(100, 60, 5000), Case(33, 1, 9001), Case(385, 257, 300), Case(0, 5, 3)]
    return [replace(case, dtype=dtype) for case in found]


def batches() -> list[Any]:
    plain = [c for c in CASES if not (c.lead_a or c.lead_b or c.accumulate) and takes(c, "torch")]
    for dtype in ("float16", "float32", "float64"):
        plain += edges(dtype)
    kinds: dict[tuple[str, str | None], list[Case]] = {}
    for case in plain:
        kinds.setdefault((case.dtype, case.activation), []).append(case)
    return [pytest.param(cases, id=f"{d}-{act or 'plain'}") for (d, act), cases in kinds.items()]


def arguments(sent: Sequence[OnGpu]) -> dict[str, Any]:
    cases = [one.given.case for one in sent]
    names = ("alpha", "beta", "transpose_a", "transpose_b")
    return {
        "a": [one.a for one in sent],
        "b": [one.b for one in sent],
        "bias": [one.bias for one in sent],
        "activation": cases[0].activation,
        **{name: [getattr(case, name) for case in cases] for name in names},
    }


def check(sent: Sequence[OnGpu]) -> None:
    for index, one in enumerate(sent):
        given = one.fetch()
        try:
            assert_right(given.out, given)
            assert_rest_untouched(given)
        except AssertionError as error:
            raise AssertionError(f"problem {index}, {given.case}: {error}") from error


def send_all(cases: Sequence[Case]) -> list[OnGpu]:
    return [send(operands(case, seed)) for seed, case in enumerate(cases)]


@pytest.mark.parametrize("kernel", [None, "triton_grouped"])
@pytest.mark.parametrize("cases", batches())
def test_every_case_and_every_edge_of_a_tile_is_right_in_one_batch(
    cases: list[Case], kernel: str | None
) -> None:
    sent = send_all(cases)
    out = [one.out for one in sent]
    assert grouped_matmul(**arguments(sent), out=out, kernel=kernel) is out
    check(sent)


LINED = ("C", "offset", "repeated")  # layouts whose rows lie element by element


@pytest.mark.parametrize("activation", [None, "relu", "gelu"])
@pytest.mark.parametrize("plain", [True, False])
def test_large_tiles_of_singles_are_right_at_every_edge(
    plain: bool, activation: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With no other tile to choose from, however small the products."""
    large = [shape for shape in tile_seconds._CUDA_SINGLE if shape.cuda]
    monkeypatch.setattr(tile_seconds, "_CUDA_SINGLE", large)
    monkeypatch.setattr(simt, "_LARGE", 0)
    found = [case for case in (*CASES, *edges("float32")) if case.dtype == "float32"]
    found = [c for c in found if not (c.lead_a or c.lead_b or c.transpose_a or c.transpose_b)]
    found = [c for c in found if c.a in LINED and c.b in LINED and c.out in LINED]
    found += [Case(129, 127, 2050, out="offset"), Case(64, 128, 48), Case(200, 300, 1)]
    if plain:
        found = [replace(case, alpha=1.0, beta=0.0, bias=False) for case in found]
    sent = send_all([replace(case, activation=activation) for case in found])
    grouped_matmul(**arguments(sent), out=[one.out for one in sent], kernel="cuda_grouped")
    check(sent)


@pytest.mark.parametrize("activation", [None, "relu", "gelu"])
@pytest.mark.parametrize("plain", [True, False])
def test_large_tiles_of_doubles_are_right_at_every_edge(
    plain: bool, activation: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However small the products."""
    monkeypatch.setattr(simt, "_LARGE", 0)
    found = [case for case in edges("float64") if not (case.transpose_a or case.transpose_b)]
    found = [c for c in found if c.a in LINED and c.b in LINED and c.out in LINED]
    found += [Case(m, n, 33, dtype="float64") for m in (17, 33, 49, 65) for n in (7, 9, 41, 57)]
    found += [Case(129, 127, 2050, out="offset", dtype="float64", bias=True, beta=0.5, alpha=2.0)]
    found += [Case(64, 128, 0, dtype="float64", beta=0.5), Case(200, 300, 1, dtype="float64")]
    if plain:
        found = [replace(case, alpha=1.0, beta=0.0, bias=False) for case in found]
    sent = send_all([replace(case, activation=activation) for case in found])
    grouped_matmul(**arguments(sent), out=[one.out for one in sent], kernel="cuda_grouped")
    check(sent)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("activation", [None, "relu"])
def test_a_few_unlike_products_are_right_in_a_call_of_the_vendors_each(
    dtype: str, activation: str | None
) -> None:
    few = [Case(300, 64, 500), Case(20, 64, 0), Case(20, 64, 0, beta=0.5), Case(1, 70, 33, a="F")]
    few += [Case(37, 29, 23, out="F", alpha=-0.5, beta=2.0), Case(37, 1, 23, b="F", out="offset")]
    few += [Case(9, 8, 7, alpha=0.0, special=np.nan), Case(64, 48, 1, transpose_b=True)]
    sent = send_all([replace(case, dtype=dtype, activation=activation) for case in few])
    grouped_matmul(**arguments(sent), out=[one.out for one in sent], kernel="vendor")
    check(sent)


def draw(
    dtype: Any, count: int = 60, most: int = 200, seed: int = 0
) -> tuple[list[Any], list[Any]]:
    sizes = np.random.default_rng(seed).integers(1, most, (count, 3)).tolist()
    a = [torch.randn(m, k, device="cuda").to(dtype) for m, n, k in sizes]
    return a, [torch.randn(k, n, device="cuda").to(dtype) for m, n, k in sizes]


def check_torch(results: Any, a: list[Any], b: list[Any]) -> None:
    """Error against float64 at most twice torch's own, plus 8 roundings of the largest element.

    Of doubles the truth is itself such a product, so that torch's own error does not show: theirs
    are roundings of the largest element that such rows and columns may have, which grows with k.
    """
    for x, y, z in zip(a, b, results, strict=True):
        if not z.numel():
            continue
        truth = x.double() @ y.double()
        own = (x @ y).double() - truth
        most = truth.abs().max()
        if x.dtype == torch.float64:
            most = x.norm(dim=1).max() * y.norm(dim=0).max()
        slack = 8 * torch.finfo(torch.promote_types(x.dtype, torch.float32)).eps * most
        assert (z.double() - truth).abs().max() <= 2 * own.abs().max() + slack


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
def test_lists_of_tensors_give_lists_of_tensors(dtype: str) -> None:
    a, b = draw(getattr(torch, dtype))
    results = grouped_matmul(a, b)
    assert all(type(z) is torch.Tensor and z.is_cuda and z.dtype == a[0].dtype for z in results)
    check_torch(results, a, b)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_a_ragged_batch_of_tensors_gives_a_ragged_batch(dtype: str) -> None:
    a, b = draw(getattr(torch, dtype))
    result = grouped_matmul(RaggedBatch.from_list(a), RaggedBatch.from_list(b))
    assert isinstance(result, RaggedBatch)
    assert result.flat.is_cuda
    assert result.dtype == a[0].dtype
    check_torch(result, a, b)


def test_rows_sorted_by_group_are_a_batch_without_a_copy() -> None:
    x = torch.randn(100, 48, device="cuda")
    w = [torch.randn(48, 32, device="cuda") for _ in range(4)]
    batch = RaggedBatch.from_rows(x, [0, 10, 10, 73, 100])
    assert batch.flat.data_ptr() == x.data_ptr()
    check_torch(grouped_matmul(batch, w), list(batch), w)


def test_a_batch_moves_to_the_gpu_and_back() -> None:
    given = [np.ones((3, 5), np.float32), np.full((2, 2), 7, np.float32)]
    there = RaggedBatch.from_list(given).to("cuda:0")
    assert there.flat.is_cuda
    for before, after in zip(given, there.to("host"), strict=True):
        np.testing.assert_array_equal(before, after)


def test_dlpack_arrays_give_their_own_kind() -> None:
    cupy = pytest.importorskip("cupy")
    a, b = cupy.ones((5, 7), cupy.float32), cupy.ones((7, 3), cupy.float32)
    result = matmul(a, b)
    assert isinstance(result, cupy.ndarray)
    assert (result.get() == 7).all()
    assert all(isinstance(z, cupy.ndarray) for z in grouped_matmul([a], [b]))


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_leading_dimensions_broadcast(dtype: str) -> None:
    a = torch.randn(4, 1, 9, 5, device="cuda").to(getattr(torch, dtype))
    b = torch.randn(3, 5, 7, device="cuda").to(getattr(torch, dtype))
    truth = a.double() @ b.double()
    assert matmul(a, b).shape == truth.shape
    torch.testing.assert_close(matmul(a, b).double(), truth, rtol=2e-2, atol=2e-2)


# The same bits, on any stream, without waiting.


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_a_repeated_call_gives_the_same_bits(dtype: str) -> None:
    a, b = draw(getattr(torch, dtype), most=300)
    a.append(torch.randn(70, 9000, device="cuda").to(a[0].dtype))
    b.append(torch.randn(9000, 50, device="cuda").to(a[0].dtype))
    first, second = grouped_matmul(a, b), grouped_matmul(a, b)
    assert all(torch.equal(x, y) for x, y in zip(first, second, strict=True))


def test_a_bound_plan_sees_changed_inputs_and_writes_the_same_results() -> None:
    a, b = draw(torch.float32)
    bound = plan_for(a, b).bind(a, b)
    check_torch(bound(), a, b)
    for x in a:
        x.mul_(3)
    again = bound()
    assert [z.data_ptr() for z in again] == [z.data_ptr() for z in bound()]
    check_torch(again, a, b)


def plan_for(a: list[Any], b: list[Any]) -> Any:
    m, n, k = ([x.shape[0] for x in a], [y.shape[1] for y in b], [x.shape[1] for x in a])
    return plan_grouped(m, n, k, dtype=a[0].dtype, device="cuda:0")


def test_products_run_on_torchs_current_stream_and_nothing_waits() -> None:
    a, b = draw(torch.float32)
    bound = plan_for(a, b).bind(a, b)
    stream = torch.cuda.Stream()
    bound()
    torch.cuda.synchronize()

    def returns_at_once(clocks: int) -> bool:
        with torch.cuda.stream(stream):
            torch.cuda._sleep(clocks)
            for x in a:
                x.mul_(2)
            results = bound()
            at_once = not stream.query()
        stream.synchronize()
        check_torch(results, a, b)
        return at_once

    # About 1, 4 and 16 s of the device's clock: a host that is busy may need longer to launch.
    clocks = (2_000_000_000, 8_000_000_000, 32_000_000_000)
    assert any(map(returns_at_once, clocks)), "the call waited for the device"


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_launches_side_by_side_follow_what_was_before_and_are_followed_by_what_comes(
    dtype: str,
) -> None:
    """Two layouts and a product cut along k; launched one by one, recorded, and replayed."""
    a, b = draw(getattr(torch, dtype), count=40, most=300)
    b = [y.T.contiguous().T if i % 2 else y for i, y in enumerate(b)]
    a.append(torch.randn(70, 9000, device="cuda").to(a[0].dtype))
    b.append(torch.randn(9000, 50, device="cuda").to(a[0].dtype))
    bound = plan_for(a, b).bind(a, b, kernel="triton_grouped")
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(4):
            torch.cuda._sleep(2_000_000)  # about 1 ms
            for x in a:
                x.mul_(-0.5)
            results = bound()
            kept = [z.clone() for z in results]
            for z in results:
                z.fill_(float("nan"))
            check_torch(kept, a, b)


@pytest.mark.parametrize("kernel", [None, "triton_grouped"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_a_graph_captures_a_bound_plan_and_replays_it(dtype: str, kernel: str | None) -> None:
    a, b = draw(getattr(torch, dtype))
    bound = plan_for(a, b).bind(a, b, kernel=kernel)
    bound()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = bound()
    for x in a:
        x.mul_(2)
    for z in results:
        z.fill_(float("nan"))
    graph.replay()
    torch.cuda.synchronize()
    check_torch(results, a, b)


def test_a_graph_captures_whole_calls() -> None:
    a, b = draw(torch.float32, count=20)
    x, y = torch.randn(40, 30, device="cuda"), torch.randn(30, 20, device="cuda")
    grouped_matmul(a, b)
    matmul(x, y, activation="gelu")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = grouped_matmul(a, b)
        dense = matmul(x, y, activation="relu")
    for z in (*a, x):
        z.mul_(2)
    graph.replay()
    torch.cuda.synchronize()
    check_torch(results, a, b)
    torch.testing.assert_close(dense, torch.relu(x @ y), rtol=1e-5, atol=1e-5)


def test_tf32_is_asked_for_and_ieee_is_the_default() -> None:
    a, b = torch.randn(300, 400, device="cuda"), torch.randn(400, 200, device="cuda")
    truth = a.double() @ b.double()
    exact, coarse = matmul(a, b), matmul(a, b, precision="tf32", kernel="triton_grouped")
    error = [float((x.double() - truth).norm() / truth.norm()) for x in (exact, coarse)]
    assert error[0] < 1e-6
    assert 1e-5 < error[1] < 2e-3


@pytest.mark.parametrize("kernel", ["vendor", "triton_grouped"])
def test_tf32_is_coarser_than_ieee_and_as_good_as_its_ten_bits(kernel: str) -> None:
    """Relative error of products of normal numbers: about 2^-24 in ieee, 2^-12 in tf32."""
    a, b = torch.randn(512, 640, device="cuda"), torch.randn(640, 384, device="cuda")
    truth = a.double() @ b.double()
    before = torch.backends.cuda.matmul.fp32_precision
    error = {}
    for precision in (None, "tf32"):
        out = torch.full(truth.shape, float("nan"), device="cuda")
        matmul(a, b, out=out, precision=precision, kernel=kernel)
        error[precision] = float((out.double() - truth).norm() / truth.norm())
    assert error[None] < 2e-6
    assert 2e-5 < error["tf32"] < 1e-3
    assert torch.backends.cuda.matmul.fp32_precision == before


# What was decided, told.


def test_a_large_dense_product_goes_to_the_vendor_and_says_so() -> None:
    a = torch.empty(4096, 4096, device="cuda")
    assert "engine     vendor" in tilewright.explain(a, a)
    assert "rejected   vendor: bias" in tilewright.explain(a, a, activation="gelu")


def test_a_plan_explains_itself() -> None:
    text = plan_grouped([100, 5], [100, 7], [100, 3], dtype="bfloat16", device="cuda:0").explain()
    assert "2 products, bfloat16" in text
    assert "predicted" in text


# Bad input: one clear error, nothing written.


def test_operands_elsewhere_are_refused_by_name() -> None:
    a, b = torch.ones(3, 4, device="cuda"), torch.ones(4, 5)
    with pytest.raises(OperandError, match=r"^b"):
        matmul(a, b)
    with pytest.raises(OperandError, match=r"^b\.device='cuda:0': a lies on 'cpu'"):
        matmul(b.T, a.T)
    with pytest.raises(OperandError, match=r"^b\[0\]"):
        grouped_matmul([a], [b])
    with pytest.raises(OperandError, match=r"a\[1\]=ndarray"):
        grouped_matmul([a, np.ones((3, 4), np.float32)], [b.cuda(), b.cuda()])
    with pytest.raises(OperandError, match=r"^out"):
        matmul(a, b.cuda(), out=torch.ones(3, 5))


def test_dtypes_that_differ_or_that_no_engine_has_are_refused() -> None:
    a, b = torch.ones(3, 4, device="cuda"), torch.ones(4, 5, device="cuda")
    with pytest.raises(DtypeError, match=r"b\.dtype='float16'"):
        matmul(a, b.half())
    with pytest.raises(DtypeError, match=r"a\.dtype='torch\.int32'"):
        matmul(a.int(), b.int())
    with pytest.raises(DtypeError, match=r"a\[1\].dtype='float16'"):
        grouped_matmul([a, a.half()], [b, b])


def test_arguments_that_make_no_sense_are_refused() -> None:
    a, b = torch.ones(3, 4, device="cuda"), torch.ones(4, 5, device="cuda")
    with pytest.raises(ArgumentError, match="precision='tf33'"):
        matmul(a, b, precision="tf33")
    with pytest.raises(ArgumentError, match="precision='tf32'"):
        matmul(a.half(), b.half(), precision="tf32")
    with pytest.raises(KernelError, match="kernel='nosuch'"):
        matmul(a, b, kernel="nosuch")
    with pytest.raises(ShapeError, match=r"b\.shape"):
        matmul(a, a)
    with pytest.raises(ShapeError, match=r"b\[0\]: has 3 rows"):
        grouped_matmul([a], [a])
    with pytest.raises(OverlapError):
        matmul(a, torch.ones(4, 4, device="cuda"), out=a)
    with pytest.raises(OperandError, match="device='host'"):
        matmul(a, b, device="host")


def test_arrays_of_the_host_are_not_taken_by_a_gpu_of_this_back_end() -> None:
    x = np.ones((4, 4), np.float32)
    with pytest.raises(OperandError, match="takes torch, CuPy and DLPack"):
        matmul(x, x, device="cuda:0")
    with pytest.raises(OperandError, match="takes torch, CuPy and DLPack"):
        grouped_matmul([x], [x], device="cuda:0")


def test_rows_at_odd_addresses_are_right() -> None:
    flat = torch.randn(20_000, device="cuda").to(torch.bfloat16)
    a = [flat[1:].as_strided((40, 33), (35, 1)), flat[3:].as_strided((7, 64), (65, 1))]
    b = [flat[5:].as_strided((33, 50), (51, 1)), flat[9:].as_strided((64, 9), (11, 1))]
    check_torch(grouped_matmul(a, b), a, b)


def test_an_engine_without_room_for_its_scratch_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.backends.cuda.machine import tables

    def full(size: int, ordinal: int) -> Any:
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr(tables, "scratch", full)
    a = [torch.ones(m, 60_000, device="cuda") for m in (32, 17) * 20]  # too many for the vendor
    b = [torch.ones(60_000, n, device="cuda") for n in (32, 9) * 20]
    with pytest.warns(DeviceWarning, match=r"triton_grouped needs .* bytes of scratch"):
        results = grouped_matmul(a, b)
    assert all((z == 60_000).all() for z in results)


def test_offsets_past_two_to_the_31_elements_are_right() -> None:
    if torch.cuda.get_device_properties(0).total_memory < 20 * 2**30:
        pytest.skip("needs 20 GB of GPU memory")
    flat = torch.zeros(2**32 + 4096, device="cuda", dtype=torch.float16)
    a = flat[-4096:].view(64, 64).normal_()
    tall = flat.as_strided((3, 64), (2**31, 1))
    tall[2].normal_()
    results = grouped_matmul([a, tall], [a, a])
    check_torch(results, [a, tall.contiguous()], [a, a])
