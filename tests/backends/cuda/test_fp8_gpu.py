"""8-bit products on a GPU: right by wgmma and in Triton; quantised as on the host, bit for bit."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tilewright.backends.cuda.machine import driver

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(driver.missing() is not None, reason=str(driver.missing())),
]
torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")

import tilewright  # noqa: E402
from tests.support import fp8_cases as cases  # noqa: E402
from tilewright import errors  # noqa: E402
from tilewright.backends.cuda.fp8 import engine, hopper, triton  # noqa: E402
from tilewright.torch_ops import fp8_again, fp8_guarded  # noqa: E402


@pytest.fixture(params=["fastest", "triton"])
def run(request: Any, monkeypatch: Any) -> Any:
    """The public call, by the fastest engine and by Triton's."""
    engines = (triton.Triton(),) if request.param == "triton" else engine._ENGINES
    monkeypatch.setattr(engine, "_ENGINES", engines)
    tilewright.forget()
    torch.manual_seed(0)

    def call(x: Any, w: Any, offsets: Any, scale_a: Any, scale_b: Any, out: Any) -> None:
        tilewright.ragged_matmul(x, w, offsets, scale_a=scale_a, scale_b=scale_b, out=out)

    yield call
    tilewright.forget()


@pytest.mark.parametrize("leading", [False, True])
@pytest.mark.parametrize("case", cases.ROWS + cases.LARGE, ids=str)
def test_rows_of_groups_meet_their_own_matrix(case: Any, leading: bool, run: Any) -> None:
    cases.check_rows(case, "cuda", run, leading=leading)
    tilewright.synchronize()


@pytest.mark.parametrize("case", cases.DEPTHS + cases.LARGE_DEPTHS, ids=str)
def test_groups_of_k_give_a_matrix_each(case: Any, run: Any) -> None:
    cases.check_depths(case, "cuda", run)
    tilewright.synchronize()


def into(x: Any, w: Any, offsets: Any, a: Any, b: Any, dtype: Any, out: Any) -> Any:
    return tilewright.ragged_matmul(x, w, offsets, scale_a=a, scale_b=b, out=out)


def new(x: Any, w: Any, offsets: Any, a: Any, b: Any, dtype: Any, out: Any) -> Any:
    return tilewright.ragged_matmul(x, w, offsets, scale_a=a, scale_b=b, out_dtype=dtype)


@pytest.mark.parametrize("way", [into, new])
@pytest.mark.parametrize("case", cases.WHOLE + cases.LARGE_WHOLE, ids=str)
def test_int8_is_exact_bit_for_bit(case: Any, way: Any, run: Any) -> None:
    for leading in (False, True):
        cases.check_whole(case, "cuda", way, leading=leading)
    tilewright.synchronize()


def test_int8_that_hopper_cannot_read_triton_takes() -> None:
    torch.manual_seed(0)
    x, w = (cases.drawn_bytes(*shape, device="cuda") for shape in ((100, 205), (205, 72)))
    assert torch.equal(tilewright.matmul(x, w).double(), x.double() @ w.double())


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_quantising_to_int8_gives_the_bits_of_the_host(kind: Any) -> None:
    torch.manual_seed(0)
    for x in (cases.odd_values().to(kind), torch.randn(300, 1000).to(kind), cases.ties().to(kind)):
        for along in (-1, 0):
            found = tilewright.quantise_int8(x.cuda(), along=along)
            wanted = tilewright.quantise_int8(x, along=along)
            torch.testing.assert_close(found[1].cpu(), wanted[1], rtol=0, atol=0, equal_nan=True)
            assert torch.equal(found[0].cpu(), wanted[0])


def operands(rows: int, kinds: tuple[str, str] = ("row", "row")) -> dict[str, Any]:
    """Two groups of so many rows together."""
    x, w = torch.randn(rows, 256, device="cuda"), torch.randn(2, 256, 128, device="cuda")
    xv, xs = tilewright.quantise_fp8(x, scale=kinds[0])
    wv, ws = tilewright.quantise_fp8(w, scale=kinds[1], along=1)
    ends = torch.tensor([rows // 3, rows], device="cuda")
    return {"x": xv, "w": wv, "offsets": ends, "scale_a": xs, "scale_b": ws}


def check(found: Any, given: dict[str, Any]) -> None:
    left, right = (
        cases.decoded(given[a], given[b]) for a, b in (("x", "scale_a"), ("w", "scale_b"))
    )
    third = int(given["offsets"][0])
    cases.assert_near(found[:third], left[:third], right[0])
    cases.assert_near(found[third:], left[third:], right[1])


@pytest.mark.parametrize("kinds", [("row", "row"), ("1x128", "128x128")], ids=str)
def test_what_was_checked_once_is_right_at_other_addresses_and_of_other_rows(kinds: Any) -> None:
    torch.manual_seed(0)
    kept = []
    for rows in (300, 300, 70, 4000, 300, 70):
        given = operands(rows, kinds)
        out = torch.full((rows, 128), float("nan"), device="cuda")
        assert tilewright.ragged_matmul(**given, out=out) is out
        check(out, given)
        check(tilewright.ragged_matmul(**given, out_dtype=torch.float32), given)
        kept.append((given, out))
    for given, out in kept:
        check(out, given)
    assert len(fp8_again._ready) > 0


@pytest.mark.parametrize("form", ["rows", "alone", "depths", "whole"])
def test_what_comes_again_exactly_so_goes_through_its_guard(form: str) -> None:
    torch.manual_seed(0)
    tilewright.forget()
    kept = []
    for turn in range(8):
        call, truth, shape = again_and_again(form)
        if turn % 2:
            poison = float("nan") if truth.is_floating_point() else -(2**31)
            out = torch.full(shape, poison, device="cuda", dtype=truth.dtype)
            assert call(out=out) is out
        else:
            out = call()
        kept.append((out, truth))
        tilewright.synchronize()
        if turn in (1, 3):
            assert len(fp8_guarded._guarded) == (0 if turn == 1 else 2)
    for found, truth in kept:
        assert (found.double() - truth.double()).norm() <= 4e-3 * truth.double().norm()


def again_and_again(form: str) -> tuple[Any, Any, tuple[int, ...]]:
    """A product of new tensors that lie as the last ones did, what it gives, and its shape."""
    x, w = torch.randn(300, 256, device="cuda"), torch.randn(2, 256, 128, device="cuda")
    ends = torch.tensor([128, 256] if form == "depths" else [100, 300], device="cuda")
    if form == "whole":
        x, w = (torch.randint(-99, 99, one.shape, device="cuda").to(torch.int8) for one in (x, w))
        w = w.mT.contiguous().mT
        truth = torch.cat([x[:100].double() @ w[0].double(), x[100:].double() @ w[1].double()])
        call = partial(tilewright.ragged_matmul, x, w, ends)
        return call, truth.to(torch.int32), (300, 128)
    xv, xs = tilewright.quantise_fp8(x)
    left = cases.decoded(xv, xs)
    if form == "depths":
        y = torch.randn(256, 128, device="cuda")
        yv, ys = tilewright.quantise_fp8(y, scale="128x128", along=0)
        parts = [
            left[:, :128] @ cases.decoded(yv, ys)[:128],
            left[:, 128:] @ cases.decoded(yv, ys)[128:],
        ]
        call = partial(tilewright.ragged_matmul, xv, yv, ends, scale_a=xs, scale_b=ys)
        return call, torch.stack(parts).bfloat16(), (2, 300, 128)
    wv, ws = tilewright.quantise_fp8(w, scale="128x128", along=1)
    right = cases.decoded(wv, ws)
    if form == "alone":
        call = partial(tilewright.matmul, xv, wv[0], scale_a=xs, scale_b=ws[0])
        return call, (left @ right[0]).bfloat16(), (300, 128)
    call = partial(tilewright.ragged_matmul, xv, wv, ends, scale_a=xs, scale_b=ws)
    return call, torch.cat([left[:100] @ right[0], left[100:] @ right[1]]).bfloat16(), (300, 128)


def test_what_was_checked_once_is_refused_where_it_is_wrong_later() -> None:
    torch.manual_seed(0)
    given = operands(300)
    memory = torch.zeros(300 * 128 + 300, device="cuda")
    for _ in range(2):
        tilewright.ragged_matmul(**given, out=memory[300:].view(300, 128))
    scale = memory[:300, None].fill_(1.0)
    tilewright.ragged_matmul(**{**given, "scale_a": scale}, out=memory[300:].view(300, 128))
    with pytest.raises(errors.OverlapError, match="scale_a"):
        tilewright.ragged_matmul(**{**given, "scale_a": scale}, out=memory[4:-296].view(300, 128))
    refused = [
        ({"scale_a": given["scale_a"][:299]}, errors.ShapeError),
        ({"scale_a": given["scale_a"].double()}, errors.DtypeError),
        ({"scale_b": given["scale_b"][:, :, :127]}, errors.ShapeError),
        ({"offsets": given["offsets"].double()}, errors.DtypeError),
        ({"offsets": given["offsets"].cpu()}, errors.OperandError),
        ({"scale_a": given["scale_a"].clone().requires_grad_()}, errors.OperandError),
        ({"out": memory[300:].view(150, 256)}, errors.ShapeError),
        ({"out_dtype": [torch.float32]}, errors.ArgumentError),
        ({"w": given["w"].to(torch.bfloat16)}, errors.DtypeError),
    ]
    for changed, error in refused:
        with pytest.raises(error):
            tilewright.ragged_matmul(**{**given, **changed})
    with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = {name: mode.from_tensor(one) for name, one in given.items()}
        assert tilewright.ragged_matmul(**fake).shape == (300, 128)


@pytest.mark.parametrize("dtype", [cases.E4M3, cases.E5M2], ids=str)
@pytest.mark.parametrize("scale", ["row", "1x128", "128x128"])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_quantising_gives_the_bits_of_the_host(scale: str, dtype: Any, kind: Any) -> None:
    torch.manual_seed(0)
    for x in (cases.odd_values().to(kind), torch.randn(300, 1000).to(kind)):
        for along in (-1, 0):
            found = tilewright.quantise_fp8(x.cuda(), scale=scale, dtype=dtype, along=along)
            wanted = tilewright.quantise_fp8(x, scale=scale, dtype=dtype, along=along)
            assert torch.equal(found[1].cpu(), wanted[1])
            assert cases.same_bits(found[0].cpu(), wanted[0])


def test_a_new_result_has_zeros_where_no_group_is() -> None:
    x, w = (torch.randn(*shape, device="cuda") for shape in ((700, 256), (3, 256, 128)))
    xv, xs = tilewright.quantise_fp8(x)
    wv, ws = tilewright.quantise_fp8(w, scale="128x128", along=1)
    offsets = torch.tensor([100, 100, 400, 600], device="cuda")
    for _ in range(3):
        junk = torch.full((700, 128), float("nan"), device="cuda", dtype=torch.bfloat16)
        del junk
        found = tilewright.ragged_matmul(xv, wv, offsets, scale_a=xs, scale_b=ws)
        assert found.dtype == torch.bfloat16
        assert not bool(found[:100].any())
        assert not bool(found[600:].any())
        cases.assert_near(found[100:400], cases.decoded(xv, xs)[100:400], cases.decoded(wv, ws)[1])


def test_rows_that_grow_and_shrink_find_what_is_theirs() -> None:
    torch.manual_seed(0)
    w = torch.randn(4, 384, 256, device="cuda")
    wv, ws = tilewright.quantise_fp8(w, scale="row", along=1)
    for rows in (10, 3000, 0, 257, 3000, 1):
        x = torch.randn(rows, 384, device="cuda")
        xv, xs = tilewright.quantise_fp8(x, scale="row")
        ends = torch.tensor([rows // 3, rows // 2, rows // 2, rows], device="cuda")
        found = tilewright.ragged_matmul(
            xv, wv, ends, scale_a=xs, scale_b=ws, out_dtype=torch.float32
        )
        left, right, first = cases.decoded(xv, xs), cases.decoded(wv, ws), 0
        for group, end in enumerate(ends.tolist()):
            cases.assert_near(found[first:end], left[first:end], right[group])
            first = end


def test_one_product_is_a_batch_of_one_group_in_a_graph_too() -> None:
    torch.manual_seed(0)
    a, b = torch.randn(500, 640, device="cuda"), torch.randn(640, 250, device="cuda")
    av, sa = tilewright.quantise_fp8(a)
    bv, sb = tilewright.quantise_fp8(b, scale="128x128", along=0)
    out = torch.empty(500, 250, device="cuda")
    call = lambda: tilewright.matmul(av, bv, scale_a=sa, scale_b=sb, out=out)  # noqa: E731
    call()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    out.fill_(float("nan"))
    graph.replay()
    cases.assert_near(out, cases.decoded(av, sa), cases.decoded(bv, sb))


def test_nan_and_infinity_reach_their_rows_and_no_other() -> None:
    torch.manual_seed(0)
    x, w = torch.randn(300, 512, device="cuda"), torch.randn(2, 512, 128, device="cuda")
    x[7, 3], x[200, 500] = float("nan"), float("inf")
    for kinds in (("row", "row"), ("1x128", "128x128")):
        xv, xs = tilewright.quantise_fp8(x, scale=kinds[0])
        wv, ws = tilewright.quantise_fp8(w, scale=kinds[1], along=1)
        ends = torch.tensor([150, 300], device="cuda")
        found = tilewright.ragged_matmul(xv, wv, ends, scale_a=xs, scale_b=ws)
        seen = found.isnan().any(1).nonzero()[:, 0].tolist()
        assert seen == [7, 200]


def test_groups_of_k_that_begin_elsewhere_are_named() -> None:
    x = torch.zeros(64, 256, device="cuda").to(cases.E4M3)
    ones, ends = torch.ones(64, 2, device="cuda"), torch.tensor([100, 256], device="cuda")
    found = tilewright.ragged_matmul(x, x.t(), ends, scale_a=ones, scale_b=ones.t())
    assert not bool(found.any())
    with pytest.raises(tilewright.errors.ShapeError, match="offsets"):
        tilewright.synchronize()


@pytest.mark.skipif(driver.missing() is not None, reason="no GPU")
def test_what_hopper_cannot_read_triton_takes() -> None:
    torch.manual_seed(0)
    x, w = torch.randn(100, 200, device="cuda"), torch.randn(2, 200, 72, device="cuda")
    xv, xs = tilewright.quantise_fp8(x)
    wv, ws = tilewright.quantise_fp8(w, scale="128x128", along=1)
    wv = torch.empty(2, 200, 72, device="cuda", dtype=wv.dtype).copy_(wv)  # n contiguous
    ends = torch.tensor([30, 100], device="cuda")
    found = tilewright.ragged_matmul(xv, wv, ends, scale_a=xs, scale_b=ws)
    left, right = cases.decoded(xv, xs), cases.decoded(wv, ws)
    cases.assert_near(found[:30], left[:30], right[0])
    cases.assert_near(found[30:], left[30:], right[1])


def test_a_hopper_gpu_multiplies_on_its_tensor_cores() -> None:
    from tilewright.backends.cuda.fp8.work import Fp8Work, Operands, Scales

    if not driver.device_of(0).has("wgmma"):
        pytest.skip("no Hopper GPU")
    x, w = torch.randn(100, 256, device="cuda"), torch.randn(2, 256, 72, device="cuda")
    xv, xs = tilewright.quantise_fp8(x)
    wv, ws = tilewright.quantise_fp8(w, scale="128x128", along=1)
    ends, out = torch.tensor([30, 100], device="cuda"), torch.empty(100, 72, device="cuda")
    work = Fp8Work(Operands(xv, wv, ends, xs, ws, out), Scales.BLOCKS)
    assert hopper.Hopper().why_not(work, driver.device_of(0)) is None
