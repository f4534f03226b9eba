"""8-bit products on processors: right, refused with one clear error, quantised as said."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")

import tilewright  # noqa: E402
from tests.support import fp8_cases as cases  # noqa: E402
from tilewright import errors  # noqa: E402


def ragged(x: Any, w: Any, offsets: Any, scale_a: Any, scale_b: Any, out: Any) -> None:
    tilewright.ragged_matmul(x, w, offsets, scale_a=scale_a, scale_b=scale_b, out=out)


@pytest.mark.parametrize("leading", [False, True])
@pytest.mark.parametrize("case", cases.ROWS, ids=str)
def test_rows_of_groups_meet_their_own_matrix(case: Any, leading: bool) -> None:
    torch.manual_seed(0)
    cases.check_rows(case, "cpu", ragged, leading=leading)


@pytest.mark.parametrize("case", cases.DEPTHS, ids=str)
def test_groups_of_k_give_a_matrix_each(case: Any) -> None:
    torch.manual_seed(0)
    cases.check_depths(case, "cpu", ragged)


def made(**changed: Any) -> dict[str, Any]:
    """Arguments of a right call, some of them changed."""
    torch.manual_seed(0)
    x, w = torch.randn(9, 256), torch.randn(2, 256, 40)
    xv, xs = tilewright.quantise_fp8(x)
    wv, ws = tilewright.quantise_fp8(w, scale="128x128", along=1)
    given = {"x": xv, "w": wv, "offsets": torch.tensor([3, 9]), "scale_a": xs, "scale_b": ws}
    return {**given, **changed}


def words_of(refused: list[Any]) -> list[str]:
    """Names of cases: tensors have none that stay the same."""
    return [f"{' '.join(changed)} {words}" for changed, _, words in refused]


REFUSED = [
    ({"scale_a": None}, errors.OperandError, "scale_a=NoneType"),
    ({"w": torch.randn(2, 256, 40)}, errors.DtypeError, "w.dtype='float32'"),
    ({"scale_a": torch.ones(9, 3)}, errors.ShapeError, r"scale_a.shape=\(9, 3\)"),
    ({"scale_b": torch.ones(2, 2, 40)}, errors.ShapeError, r"accepted are \(9, 1\) with"),
    ({"scale_b": torch.ones(2, 2, 1).half()}, errors.DtypeError, "scale_b.dtype='float16'"),
    ({"scale_a": torch.ones(9, 2, requires_grad=True)}, errors.OperandError, "gradient"),
    ({"offsets": torch.tensor([3.0, 9.0])}, errors.DtypeError, "offsets.dtype"),
    ({"offsets": torch.tensor([3])}, errors.ShapeError, "must have 2 ends"),
    ({"offsets": torch.tensor([3, 10])}, errors.ShapeError, r"offsets\[group 1\]"),
    ({"out_dtype": torch.float64}, errors.ArgumentError, "out_dtype=torch.float64"),
    ({"bias": torch.zeros(2, 40)}, errors.ArgumentError, "bias: not with scales"),
    ({"precision": "tf32"}, errors.ArgumentError, "precision: not with scales"),
    ({"out": torch.zeros(9, 41)}, errors.ShapeError, "out.shape"),
    ({"out": torch.zeros(9, 40).half()}, errors.DtypeError, "out.dtype='float16'"),
    ({"out": torch.zeros(1, 40).expand(9, 40)}, errors.OverlapError, "out"),
]


@pytest.mark.parametrize(("changed", "error", "words"), REFUSED, ids=words_of(REFUSED))
def test_what_cannot_be_is_named(changed: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        tilewright.ragged_matmul(**made(**changed))


def test_an_out_that_shares_memory_with_an_operand_is_refused() -> None:
    given = made()
    shared = torch.zeros(9 * 40 * 4, dtype=torch.uint8)
    scale = shared[:72].view(torch.float32).reshape(9, 2)
    out = shared.view(torch.float32).reshape(9, 40)
    with pytest.raises(errors.OverlapError):
        tilewright.ragged_matmul(**{**given, "scale_a": scale, "out": out})


def test_groups_of_k_that_begin_within_128_are_refused() -> None:
    x = torch.zeros(4, 256).to(cases.E4M3)
    with pytest.raises(errors.ShapeError, match="multiples of 128"):
        tilewright.ragged_matmul(
            x, x.t(), torch.tensor([100, 256]), scale_a=torch.ones(4, 2), scale_b=torch.ones(2, 4)
        )


def test_one_product_takes_scales_of_rows_of_blocks_and_one_for_all() -> None:
    torch.manual_seed(0)
    a, b = torch.randn(30, 200), torch.randn(200, 50)
    for kinds in (("row", "row"), ("1x128", "128x128")):
        av, sa = tilewright.quantise_fp8(a, scale=kinds[0])
        bv, sb = tilewright.quantise_fp8(b, scale=kinds[1], along=0)
        found = tilewright.matmul(av, bv, scale_a=sa, scale_b=sb, out_dtype=torch.float32)
        cases.assert_near(found, cases.decoded(av, sa), cases.decoded(bv, sb))
        if kinds[0] == "row":  # as torch's own calls have them
            flat = tilewright.matmul(
                av, bv, scale_a=sa[:, 0], scale_b=sb[0], out_dtype=torch.float32
            )
            assert torch.equal(flat, found)
    one = torch.tensor(0.5)
    found = tilewright.matmul(av, bv, scale_a=one, scale_b=one, out_dtype=torch.float32)
    torch.testing.assert_close(found, 0.25 * (av.float() @ bv.float()))


def test_options_that_products_with_scales_have_not_are_refused() -> None:
    a = torch.zeros(4, 16).to(cases.E4M3)
    one = torch.tensor(1.0)
    for options in ({"alpha": 2.0}, {"transpose_b": True}, {"bias": torch.zeros(4)}):
        with pytest.raises(errors.ArgumentError, match="beside scales"):
            tilewright.matmul(a, a.t(), scale_a=one, scale_b=one, **options)
    with pytest.raises(errors.ArgumentError, match="not explained"):
        tilewright.explain(a, a.t(), scale_a=one, scale_b=one)
    with pytest.raises(errors.OperandError, match="with scales accepted are torch tensors"):
        tilewright.matmul([[1.0]], a, scale_a=one, scale_b=one)


@pytest.mark.parametrize("dtype", [cases.E4M3, cases.E5M2], ids=str)
@pytest.mark.parametrize("scale", ["row", "1x128", "128x128"])
def test_values_times_scales_are_within_half_a_step(scale: str, dtype: Any) -> None:
    torch.manual_seed(0)
    x = cases.drawn(2, 300, 200, device="cpu")
    for along in (-1, -2):
        values, scales = tilewright.quantise_fp8(x, scale=scale, dtype=dtype, along=along)
        assert values.shape == x.shape
        assert values.stride(along) == 1
        step = 2.0**-4 if dtype == cases.E4M3 else 2.0**-3
        smallest = 2.0**-10 if dtype == cases.E4M3 else 2.0**-17
        found = torch.stack([cases.decoded(*pair) for pair in zip(values, scales, strict=True)])
        room = cases.decoded(torch.ones_like(x[0]), scales[0]).abs() * smallest * 1.01
        miss = (found[0] - x[0].double()).abs()
        assert bool((miss <= step * 1.001 * x[0].double().abs() + room).all())
        largest = (values.float().abs() == cases.LARGEST[dtype]).any()
        assert bool(largest), "the largest of a block is the largest of the type"


def test_zeros_have_scale_one_and_what_is_not_finite_stays_seen() -> None:
    x = torch.zeros(3, 128)
    x[1, :3] = torch.tensor([float("inf"), -2.0, float("nan")])
    for dtype in (cases.E4M3, cases.E5M2):
        values, scales = tilewright.quantise_fp8(x, dtype=dtype)
        assert torch.equal(scales[:, 0], torch.tensor([1.0, 2.0 / cases.LARGEST[dtype], 1.0]))
        found = values.float()[1]
        assert found[1] == -cases.LARGEST[dtype]
        assert bool(found[2].isnan())
        assert bool(found[0].isnan()) if dtype == cases.E4M3 else float(found[0]) == float("inf")
        assert not bool(found[3:].any())
        assert not bool(values[0].float().any())


NOT_QUANTISED = [
    ({"x": torch.zeros(4, 4, dtype=torch.float64)}, errors.DtypeError, "x.dtype='float64'"),
    ({"x": torch.zeros(4)}, errors.ShapeError, r"x.shape=\(4,\)"),
    ({"x": [1.0]}, errors.OperandError, "x=list"),
    ({"x": torch.zeros(4, 4, requires_grad=True)}, errors.OperandError, "gradient"),
    ({"scale": "128"}, errors.ArgumentError, "scale='128'"),
    ({"dtype": torch.int8}, errors.ArgumentError, "dtype=torch.int8"),
    ({"along": 2}, errors.ArgumentError, "along=2"),
    ({"along": True}, errors.ArgumentError, "along=True"),
    ({"offsets": torch.tensor([4])}, errors.ArgumentError, "offsets: with x of 2"),
    ({"offsets": torch.tensor([4]), "along": 0, "scale": "row"}, errors.ArgumentError, "'row'"),
    ({"offsets": torch.tensor([5]), "along": 0}, errors.ShapeError, r"offsets\[group 0\]"),
]


@pytest.mark.parametrize(("changed", "error", "words"), NOT_QUANTISED, ids=words_of(NOT_QUANTISED))
def test_what_cannot_be_quantised_is_named(changed: Any, error: Any, words: str) -> None:
    given = {"x": torch.zeros(4, 4), **changed}
    with pytest.raises(error, match=words):
        tilewright.quantise_fp8(given.pop("x"), **given)


@pytest.mark.parametrize("shape", [(0, 128), (5, 0), (0, 0)])
def test_nothing_is_quantised_and_multiplied_too(shape: tuple[int, int]) -> None:
    for kinds in (("row", "row"), ("1x128", "128x128")):
        values, scales = tilewright.quantise_fp8(torch.randn(shape), scale=kinds[0])
        w, ws = tilewright.quantise_fp8(torch.randn(shape[1], 6), scale=kinds[1], along=0)
        found = tilewright.matmul(values, w, scale_a=scales, scale_b=ws)
        assert found.shape == (shape[0], 6)
        assert not bool(found.any())


def test_a_compiler_sees_one_graph() -> None:
    def step(x: Any, w: Any, ends: Any) -> Any:
        xv, xs = tilewright.quantise_fp8(x)
        wv, ws = tilewright.quantise_fp8(w, scale="128x128", along=1)
        return tilewright.ragged_matmul(xv, wv, ends, scale_a=xs, scale_b=ws)

    torch.manual_seed(0)
    given = torch.randn(20, 200), torch.randn(2, 200, 130), torch.tensor([7, 18])
    compiled = torch.compile(step, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(*given), step(*given))
    for mode in (torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True),):
        with mode:
            assert step(*(mode.from_tensor(one) for one in given)).shape == (20, 130)
