"""Products of int8 on processors: equal to whole numbers' own, refused with one clear error."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")

import tilewright  # noqa: E402
from tests.support import fp8_cases as cases  # noqa: E402
from tilewright import errors  # noqa: E402


def into(x: Any, w: Any, offsets: Any, a: Any, b: Any, dtype: Any, out: Any) -> Any:
    return tilewright.ragged_matmul(x, w, offsets, scale_a=a, scale_b=b, out=out)


def new(x: Any, w: Any, offsets: Any, a: Any, b: Any, dtype: Any, out: Any) -> Any:
    return tilewright.ragged_matmul(x, w, offsets, scale_a=a, scale_b=b, out_dtype=dtype)


@pytest.mark.parametrize("run", [into, new])
@pytest.mark.parametrize("case", cases.WHOLE, ids=str)
def test_rows_of_groups_meet_their_own_matrix_exactly(case: Any, run: Any) -> None:
    torch.manual_seed(0)
    cases.check_whole(case, "cpu", run, leading=run is new)


def test_one_product_is_int32_or_scaled() -> None:
    torch.manual_seed(0)
    a, b = cases.drawn_bytes(30, 3000, device="cpu"), cases.drawn_bytes(3000, 50, device="cpu")
    exact = (a.double() @ b.double()).to(torch.int32)
    found = tilewright.matmul(a, b)
    assert found.dtype == torch.int32
    assert torch.equal(found, exact)
    out = torch.full((30, 100), 7, dtype=torch.int32)[:, ::2]
    assert tilewright.matmul(a, b, out=out) is out
    assert torch.equal(out, exact)
    one = torch.tensor(0.25)
    scaled = tilewright.matmul(a, b, scale_a=one, scale_b=one, out_dtype=torch.float32)
    assert torch.equal(scaled, exact.float() * 0.0625)


def test_sums_wrap_around_past_2_to_the_31() -> None:
    k = 131_073
    a = torch.full((1, k), -128, dtype=torch.int8)
    assert int(tilewright.matmul(a, a.t())) == (k * 2**14 + 2**31) % 2**32 - 2**31
    assert int(tilewright.matmul(a[:, :131_071], a[:, :131_071].t())) == 131_071 * 2**14


def test_values_times_scales_are_within_half_a_step() -> None:
    torch.manual_seed(0)
    x = cases.drawn(2, 300, 200, device="cpu")
    for along in (-1, -2):
        values, scales = tilewright.quantise_int8(x, along=along)
        assert values.dtype == torch.int8
        assert values.stride(along) == 1
        assert scales.shape == x.sum(along, keepdim=True).shape
        assert bool((values.abs() == 127).any(along).all()), "the largest of a row is 127"
        miss = (values.double() * scales.double() - x.double()).abs()
        assert bool((miss <= 0.5001 * scales.double()).all())


def test_what_is_not_finite_is_seen_in_its_row_and_no_other() -> None:
    x = torch.randn(4, 40)
    x[1, 3], x[2, 7], x[3] = float("nan"), float("inf"), 0.0
    values, scales = tilewright.quantise_int8(x)
    assert scales[:, 0].isnan().tolist() == [False, True, True, False]
    assert float(scales[3, 0]) == 1.0
    w, of_w = tilewright.quantise_int8(torch.randn(40, 6), along=0)
    found = tilewright.matmul(values, w, scale_a=scales, scale_b=of_w)
    assert found.isnan().all(1).tolist() == [False, True, True, False]
    assert not bool(found[[0, 3]].isnan().any())


def made(**changed: Any) -> dict[str, Any]:
    """Arguments of a right call, some of them changed."""
    torch.manual_seed(0)
    xv, xs = tilewright.quantise_int8(torch.randn(9, 256))
    wv, ws = tilewright.quantise_int8(torch.randn(2, 256, 40), along=1)
    given = {"x": xv, "w": wv, "offsets": torch.tensor([3, 9]), "scale_a": xs, "scale_b": ws}
    return {**given, **changed}


NONE = {"scale_a": None, "scale_b": None}
REFUSED = [
    ({"scale_a": None}, errors.OperandError, "scale_a=NoneType"),
    ({"w": torch.zeros(2, 256, 40)}, errors.DtypeError, "w.dtype='float32'"),
    ({"w": torch.zeros(2, 256, 40).to(cases.E4M3)}, errors.DtypeError, "accepted are both int8"),
    ({"scale_a": torch.ones(9, 2), "scale_b": torch.ones(2, 2, 1)}, errors.ShapeError, "of int8"),
    ({"out_dtype": torch.int32}, errors.ArgumentError, "out_dtype=torch.int32"),
    ({**NONE, "out_dtype": torch.float32}, errors.ArgumentError, "accepted is torch.int32"),
    ({**NONE, "out": torch.zeros(9, 40)}, errors.DtypeError, "out.dtype='float32'"),
    ({**NONE, "bias": torch.zeros(2, 40)}, errors.ArgumentError, "bias: not with"),
    ({**NONE, "w": torch.zeros(2, 255, 40, dtype=torch.int8)}, errors.ShapeError, "256 rows"),
    ({**NONE, "offsets": torch.tensor([3, 10])}, errors.ShapeError, r"offsets\[group 1\]"),
    ({**NONE, "batch_invariant": True}, errors.ArgumentError, "batch_invariant"),
]


@pytest.mark.parametrize(("changed", "error", "words"), REFUSED, ids=[one[2] for one in REFUSED])
def test_what_cannot_be_is_named(changed: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        tilewright.ragged_matmul(**made(**changed))


def test_groups_of_k_and_options_of_other_products_are_refused() -> None:
    a = torch.zeros(4, 16, dtype=torch.int8)
    with pytest.raises(errors.ShapeError, match="of int8 accepted"):
        tilewright.ragged_matmul(a, a.t(), torch.tensor([3, 16]))
    for options in ({"alpha": 2.0}, {"transpose_b": True}, {"bias": torch.zeros(4)}):
        with pytest.raises(errors.ArgumentError, match="of int8"):
            tilewright.matmul(a, a.t(), **options)
    with pytest.raises(errors.ArgumentError, match="not explained"):
        tilewright.explain(a, a.t())
    with pytest.raises(errors.ArgumentError, match="along=2"):
        tilewright.quantise_int8(torch.zeros(4, 4), along=2)


@pytest.mark.parametrize("name", ["x", "w", "scale_a", "scale_b"])
def test_a_tensor_without_memory_is_named(name: str) -> None:
    given = made()
    given[name].untyped_storage().resize_(0)
    with pytest.raises(errors.OperandError, match=f"{name} of shape .*: has no memory"):
        tilewright.ragged_matmul(**given)


@pytest.mark.parametrize("shape", [(0, 128), (5, 0), (0, 0)])
def test_nothing_is_multiplied_too(shape: tuple[int, int]) -> None:
    values, scales = tilewright.quantise_int8(torch.randn(shape))
    w, of_w = tilewright.quantise_int8(torch.randn(shape[1], 6), along=0)
    for options in ({}, {"scale_a": scales, "scale_b": of_w}):
        found = tilewright.matmul(values, w, **options)
        assert found.shape == (shape[0], 6)
        assert not bool(found.any())


def test_a_compiler_sees_one_graph() -> None:
    def step(x: Any, w: Any, ends: Any) -> Any:
        xv, xs = tilewright.quantise_int8(x)
        wv, ws = tilewright.quantise_int8(w, along=1)
        scaled = tilewright.ragged_matmul(xv, wv, ends, scale_a=xs, scale_b=ws)
        return scaled, tilewright.ragged_matmul(xv, wv, ends)

    torch.manual_seed(0)
    given = torch.randn(20, 200), torch.randn(2, 200, 130), torch.tensor([7, 18])
    compiled = torch.compile(step, backend="aot_eager", fullgraph=True)
    for found, wanted in zip(compiled(*given), step(*given), strict=True):
        assert torch.equal(found, wanted)


def lists_of_bytes() -> tuple[list[Any], list[Any]]:
    a = [torch.ones(3, 4, dtype=torch.int8) for _ in range(3)]
    return a, [torch.full((4, 5), 2, dtype=torch.int8) for _ in range(3)]


def under_a_mode(a: Any, b: Any) -> Any:
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False):
        return tilewright.grouped_matmul(a, b)


SEEN: dict[str, Any] = {
    "a mode": under_a_mode,
    "a transform": lambda a, b: torch.func.vmap(
        lambda x: tilewright.grouped_matmul([x], [b[0]])[0]
    )(a[0][None]),
    "no memory": lambda a, b: tilewright.grouped_matmul(
        [x.to("meta") for x in a], [y.to("meta") for y in b]
    ),
    "floats beside": lambda a, b: tilewright.grouped_matmul([x.float() for x in a], b),
}


@pytest.mark.parametrize("who", SEEN)
def test_where_lists_of_int8_are_not_taken_the_error_says_where_they_are(who: str) -> None:
    a, b = lists_of_bytes()
    with pytest.raises(
        errors.DtypeError, match=r"'int8': .*; int8 of both operands, in lists on a"
    ):
        SEEN[who](a, b)
    made = tilewright.grouped_matmul(a, b)
    assert all(torch.equal(one, torch.full((3, 5), 8, dtype=torch.int32)) for one in made)


def test_lists_of_int8_are_not_multiplied_by_torch_first(monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.calls import grouped_quick_tensors

    one = [torch.ones(3, 3)] * 4
    tilewright.grouped_matmul(one, one)
    asked: list[Any] = []
    monkeypatch.setattr(grouped_quick_tensors, "_multiply", lambda *given: asked.append(given))
    tilewright.grouped_matmul(*lists_of_bytes())
    assert not asked
