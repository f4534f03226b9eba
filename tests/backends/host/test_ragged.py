"""Ragged products of processors by the host's own kernels: right for whatever lies there."""

from __future__ import annotations

import os
import threading
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import remember
from tilewright.backends.host import compiled, ragged
from tilewright.errors import OperandError, ShapeError, TilewrightError
from tilewright.inputs.devices import host

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")
if not compiled.available():
    pytest.skip("Numba is not installed", allow_module_level=True)

from tilewright.torch_ops import ragged_tensors  # noqa: E402

pytestmark = pytest.mark.usefixtures("compiled_for_all")
DTYPES = ("float32", "float64", "bfloat16", "float16")
# Twice what one rounding of the dtype costs, as a part of the largest element.
BOUNDS = {"float32": 1e-6, "float64": 2e-15, "bfloat16": 8e-3, "float16": 1e-3}
COUNTS = {"few": (3, 0, 5), "none": (0, 0), "one": (1,), "many": (1, 0, 30, 2, 97, 5, 0, 61)}
SIZES = ((64, 64), (17, 33), (300, 5), (1, 1), (0, 4), (520, 150))


@pytest.fixture(autouse=True)
def met_by_nobody() -> None:
    remember.forget()


def drawn(shape: tuple[int, ...], lies: str, dtype: str, seed: int = 0) -> Any:
    """Numbers that lie plainly, turned, apart from each other, or from an odd address on."""
    draw = torch.Generator().manual_seed(sum(shape) + seed)
    kind = getattr(torch, dtype)
    if lies == "turned":
        shape = (*shape[:-2], shape[-1], shape[-2])
        return torch.randn(shape, generator=draw).to(kind).mT
    if lies == "apart":
        return torch.randn((*shape[:-1], 2 * shape[-1]), generator=draw).to(kind)[..., ::2]
    if lies == "shifted":
        flat = torch.randn(int(np.prod(shape)) + 1, generator=draw).to(kind)
        return flat[1:].view(shape)
    return torch.randn(shape, generator=draw).to(kind)


def reference(x: Any, w: Any, bounds: list[int], bias: Any = None) -> Any:
    """In float64, a product a group; rows of no group are zeros."""
    if w.dim() == 2:
        return torch.stack([x[:, i:j].double() @ w[i:j].double() for i, j in pairwise(bounds)])
    out = torch.zeros((x.shape[0], w.shape[2]), dtype=torch.float64)
    for group, (i, j) in enumerate(pairwise(bounds)):
        out[i:j] = x[i:j].double() @ w[group].double()
        if bias is not None:
            out[i:j] += bias[group].double()
    return out


def near(found: Any, right: Any, dtype: str) -> None:
    assert found.shape == right.shape
    most = right.abs().max() if right.numel() else 0.0
    wrong = (found.detach().double() - right).abs().max() if right.numel() else 0.0
    assert wrong <= BOUNDS[dtype] * most + 1e-6 * (dtype == "float32")


def native(*given: Any, bias: Any = None) -> Any:
    """The product by the kernels alone."""
    kind = ragged_tensors._kind(*given, bias, None)
    launch = ragged_tensors.Launch(ragged.Bound(kind, host()), *given)
    x, w, offsets = given
    of_rows = w.dim() == 3
    shape = (x.shape[0], w.shape[2]) if of_rows else (len(offsets), x.shape[0], w.shape[1])
    out = torch.full(shape, float("nan"), dtype=x.dtype)
    place = 0 if bias is None else bias.data_ptr()
    t = x.shape[0 if of_rows else 1]
    places = (x.data_ptr(), w.data_ptr(), offsets.data_ptr(), place, out.data_ptr())
    assert launch.bound(*places, t, 2, ragged.MUST) == ragged.DONE
    return out


@pytest.mark.parametrize("lies", ["plain", "turned", "apart", "shifted"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_of_any_sizes_and_layout_are_right(dtype: str, lies: str) -> None:
    for counts in COUNTS.values():
        for k, n in SIZES:
            total = sum(counts) + 2  # rows that no group has
            x = drawn((total, k), lies, dtype)
            w = drawn((len(counts), k, n), lies, dtype)
            bias = drawn((len(counts), n), "plain", dtype, 1)
            ends = np.cumsum(counts).tolist()
            for bounds, kind in (([0, *ends], torch.int32), ([0, *ends], torch.int64)):
                offsets = torch.tensor(bounds, dtype=kind)
                near(native(x, w, offsets[1:]), reference(x, w, bounds), dtype)
                near(native(x, w, offsets, bias=bias), reference(x, w, bounds, bias), dtype)


@pytest.mark.parametrize("lies", ["plain", "turned", "apart", "shifted"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_depths_of_any_sizes_and_layout_are_right(dtype: str, lies: str) -> None:
    for counts in (*COUNTS.values(), (700, 3)):
        for m, n in ((64, 64), (17, 33), (5, 1), (130, 150)):
            ends = np.cumsum(counts).tolist()
            x = drawn((m, ends[-1] + 2), lies, dtype)
            y = drawn((ends[-1] + 2, n), lies, dtype)
            found = native(x, y, torch.tensor(ends))
            near(found, reference(x, y, [0, *ends]), dtype)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_large_products_are_shared_and_equal_those_of_one_thread(dtype: str) -> None:
    x, w = drawn((900, 300), "plain", dtype), drawn((3, 300, 290), "turned", dtype)
    ends = torch.tensor([500, 510, 900], dtype=torch.int32)
    near(native(x, w, ends), reference(x, w, [0, *ends.tolist()]), dtype)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = tw.ragged_matmul(x, w, ends)
        torch.set_num_threads(2)
        near(tw.ragged_matmul(x, w, ends), alone.double(), dtype)
    finally:
        torch.set_num_threads(before)


def test_infinities_and_nan_stay_where_they_are() -> None:
    for dtype in DTYPES:
        x, w = drawn((6, 20), "plain", dtype), drawn((2, 20, 40), "plain", dtype)
        x[1, 3], x[5, 0], w[1, 0, 7] = float("nan"), float("inf"), float("nan")
        found = tw.ragged_matmul(x, w, torch.tensor([3, 6]))
        right = torch.cat((x[:3] @ w[0], x[3:] @ w[1]))
        assert torch.equal(found.isnan(), right.isnan())
        assert torch.equal(found.isinf(), right.isinf())


@pytest.mark.parametrize("ends", [[3, 1, 6], [3, 4, 9], [-1, 4, 6]])
def test_wrong_offsets_are_named_whether_met_before_or_not(ends: list[int]) -> None:
    x, w = drawn((6, 20), "plain", "float32"), drawn((3, 20, 40), "plain", "float32")
    for _ in range(3):
        with pytest.raises(ShapeError, match="offsets"):
            tw.ragged_matmul(x, w, torch.tensor(ends))
        tw.ragged_matmul(x, w, torch.tensor([1, 4, 6]))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_is_torchs_to_multiply_is_checked_and_ends_with_zeros(
    monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    """Where its loop is predicted to be sooner, known or not, with gradients or without."""
    monkeypatch.setattr(ragged, "THEIRS", dict.fromkeys(ragged.THEIRS, 0.0))
    monkeypatch.setattr(ragged, "_THEIR_SHARE", dict.fromkeys(ragged._THEIR_SHARE, 1e6))
    monkeypatch.setattr(ragged, "_THEIR_READS", dict.fromkeys(ragged._THEIR_READS, 1e6))
    taken: list[object] = []
    theirs = ragged_tensors._grouped
    monkeypatch.setattr(
        ragged_tensors, "_grouped", lambda *a, **b: taken.append(a) or theirs(*a, **b)
    )
    x, w = drawn((40, 64), "plain", dtype), drawn((3, 64, 64), "turned", dtype)
    tw.ragged_matmul(x, w, torch.tensor([10, 10, 40], dtype=torch.int32))
    for ends in ([10, 10, 40], [10, 25, 31], [0, 0, 0], [40, 40, 40]):
        offsets = torch.tensor(ends, dtype=torch.int32)
        right = reference(x, w, [0, *ends])
        for wanted in (False, True):
            x.requires_grad_(wanted)
            before = len(taken)
            found = tw.ragged_matmul(x, w, offsets)
            near(found, right, dtype)
            assert found.requires_grad == wanted
            assert torch.equal(found[ends[-1] :], torch.zeros_like(found[ends[-1] :]))
            assert wanted or not ends[-1] or len(taken) > before  # with gradients it is new
        with pytest.raises(ShapeError, match="offsets"):
            tw.ragged_matmul(x, w, torch.tensor([10, 9, 40], dtype=torch.int32))


def test_calls_that_torch_took_are_taken_back_when_groups_are_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One large group by torch, many small ones by the kernels, in turn and with equal rows."""
    monkeypatch.setattr(ragged, "THEIRS", dict.fromkeys(ragged.THEIRS, 1.0))
    asked: list[int] = []
    made = ragged_tensors.Launch.made

    def watched(launch: Any, *given: Any) -> Any:
        asked.append(launch.asks)
        launch.asks = ragged.LOOKS  # as after a call that torch took
        return made(launch, *given)

    monkeypatch.setattr(ragged_tensors.Launch, "made", watched)
    x, w = drawn((40, 64), "plain", "float32"), drawn((3, 64, 64), "turned", "float32")
    for ends in ([10, 10, 40], [10, 25, 31], [0, 0, 0]):
        for _ in range(2):
            found = tw.ragged_matmul(x, w, torch.tensor(ends, dtype=torch.int32))
            near(found, reference(x, w, [0, *ends]), "float32")
            assert torch.equal(found[ends[-1] :], torch.zeros_like(found[ends[-1] :]))
    assert asked[1:] == [ragged.ASKS] * (len(asked) - 1)
    assert len(asked) >= 6


@pytest.mark.parametrize("form", ["rows", "depths"])
def test_an_out_is_known_to_autograd_to_be_written(form: str) -> None:
    """By the kernels: what was saved of it before is no longer what it was."""
    x = drawn((6, 6), "plain", "float32")
    w = drawn((2, 6, 6), "plain", "float32") if form == "rows" else x
    y = torch.ones(6, 6, requires_grad=True).exp()
    if form == "depths":
        y = torch.ones(2, 6, 6, requires_grad=True).exp()
    tw.ragged_matmul(x, w, torch.tensor([2, 6]), out=y.detach())
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("first", ["whole", "step"])
def test_offsets_that_lie_apart_are_read_where_they_lie(first: str) -> None:
    """Whether dense ones of the same number were met before or not, the bits are the same."""
    x, w = drawn((12, 30), "plain", "float64"), drawn((3, 30, 8), "turned", "float64")
    table = torch.tensor([[3, 9], [3, 9], [12, 9]])
    whole, step = table[:, 0].contiguous(), table[:, 0]
    with torch.inference_mode(first == "step"):  # which is multiplied and not remembered
        right = tw.ragged_matmul(x, w, whole).clone()
    near(right, reference(x, w, [0, 3, 3, 12]), "float64")
    for offsets in (step, whole, step, whole, step):
        assert torch.equal(tw.ragged_matmul(x, w, offsets), right)


@pytest.mark.parametrize("rows", [5, 7])
def test_depths_of_unlike_lengths_are_named_whether_met_before_or_not(rows: int) -> None:
    ends = torch.tensor([2, 5])
    for _ in range(4):
        with pytest.raises(ShapeError, match="must have 6 rows"):
            tw.ragged_matmul(torch.ones(3, 6), torch.ones(rows, 4), ends)
        assert tw.ragged_matmul(torch.ones(3, rows), torch.ones(rows, 4), ends).shape == (2, 3, 4)


@pytest.mark.parametrize("met", [False, True])
@pytest.mark.parametrize("form", ["rows", "bias", "out", "depths", "alone"])
def test_memory_that_was_given_back_is_named_whether_met_before_or_not(
    form: str, met: bool
) -> None:
    names = ["x", "w", "offsets", *([form] if form in ("bias", "out") else ())]
    for name in names:
        for _ in range(2 * met):
            tw.ragged_matmul(**_given(form))
        given = _given(form)
        given[name].untyped_storage().resize_(0)
        said = ""
        try:
            tw.ragged_matmul(**given)
        except TilewrightError as error:
            said = str(error)
        del given  # a report of a failure would print them, and with them whatever lies there
        assert said.startswith(f"{name} of shape")
        assert "has no memory" in said


def _given(form: str) -> dict[str, Any]:
    """Arguments of a product of this form."""
    ends = torch.tensor([3, 3, 8], dtype=torch.int32)
    if form == "depths":
        return {"x": torch.ones(4, 8), "w": torch.ones(8, 4), "offsets": ends}
    given = {"x": torch.ones(8, 4), "w": torch.ones(3, 4, 4), "offsets": ends}
    if form == "bias":
        given["bias"] = torch.ones(3, 4)
    if form == "out":
        given["out"] = torch.ones(8, 4)
    return given | ({"batch_invariant": True} if form == "alone" else {})


def test_what_lies_alike_is_known_with_any_number_of_rows_and_nothing_else_is() -> None:
    w = drawn((3, 20, 40), "turned", "float32")
    ends = torch.tensor([1, 4, 6])
    for rows in (6, 7, 50):
        x = drawn((rows, 20), "plain", "float32")
        near(tw.ragged_matmul(x, w, ends), reference(x, w, [0, 1, 4, 6]), "float32")
    for other in (x.double(), x.T.contiguous().T, x[:, ::2], x[None]):
        known = ragged_tensors.again(other, w, ends, None, None)
        assert known is None


def test_the_result_of_results_passed_on_is_followed_by_autograd() -> None:
    """Known tensors, of which later ones ask for gradients: under no_grad, with it, for both."""
    ends = torch.tensor([2, 2, 6])
    plain = [drawn((6, 20), "plain", "float64"), drawn((3, 20, 8), "turned", "float64")]
    for _ in range(2):
        tw.ragged_matmul(*plain, ends)
    for _ in range(3):
        x, w = (one.clone().requires_grad_() for one in plain)
        with torch.no_grad():
            assert not tw.ragged_matmul(x, w, ends).requires_grad
        found = tw.ragged_matmul(x, w, ends)
        weight = torch.arange(48.0, dtype=torch.float64).view(6, 8)
        mine = torch.autograd.grad((found * weight).sum(), (x, w))
        right = torch.cat((x[:2] @ w[0], x[2:] @ w[2]))
        theirs = torch.autograd.grad((right * weight).sum(), (x, w))
        for one, other in zip(mine, theirs, strict=True):
            torch.testing.assert_close(one, other)
    assert torch.autograd.gradgradcheck(
        lambda a, b: tw.ragged_matmul(a, b, ends), (x[:, :3], w[:, :3, :2])
    )


def test_threads_that_call_at_once_do_not_share_what_they_plan_in() -> None:
    x, w = drawn((64, 48), "plain", "float32"), drawn((4, 48, 40), "plain", "float32")
    ends = torch.tensor([10, 20, 44, 64])
    right = reference(x, w, [0, *ends.tolist()])
    wrong: list[float] = []

    def work() -> None:
        for _ in range(200):
            found = tw.ragged_matmul(x, w, ends)
            wrong.append(float((found.double() - right).abs().max()))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(wrong) == 800
    assert max(wrong) < 1e-4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_child_multiplies_alone() -> None:
    """Where torch's own operations on large tensors would wait for threads that are not there."""
    x, w = drawn((900, 300), "plain", "float32"), drawn((3, 300, 290), "plain", "float32")
    ends = torch.tensor([500, 510, 900], dtype=torch.int32)
    parent = tw.ragged_matmul(x, w, ends).numpy().copy()
    arrays = x.numpy(), w.numpy(), ends.numpy()
    tw.ragged_matmul(*arrays)
    child = os.fork()
    if not child:
        same = np.allclose(tw.ragged_matmul(*arrays), parent, atol=1e-4)
        os._exit(0 if same else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_without_a_pool_of_torchs_the_hosts_own_threads_multiply(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ragged, "_pool", lambda: 0)
    x, w = drawn((900, 300), "plain", "float32"), drawn((3, 300, 290), "plain", "float32")
    ends = torch.tensor([500, 510, 900], dtype=torch.int32)
    near(native(x, w, ends), reference(x, w, [0, *ends.tolist()]), "float32")


def test_halves_are_rounded_to_the_nearest_and_ties_to_even() -> None:
    """A product with a one is what it rounds to: of a sum of two, exact in float32."""
    draw = np.random.default_rng(0)
    for dtype in ("bfloat16", "float16"):
        kind = getattr(torch, dtype)
        large = torch.from_numpy(draw.standard_normal(4000).astype(np.float32)).to(kind)
        small = (large.float() * 2.0 ** -draw.integers(7, 13)).to(kind)
        x = torch.stack((large, small), 1)
        w = torch.ones((1, 2, 1), dtype=kind)
        found = native(x, w, torch.tensor([4000]))[:, 0]
        assert torch.equal(found, (large.float() + small.float()).to(kind))


NUMPY = ("float32", "float64", "float16")
LAID = {
    "plain": lambda value: value,
    "turned": lambda value: np.asfortranarray(value),
    "backwards": lambda value: np.ascontiguousarray(value[..., ::-1, ::-1])[..., ::-1, ::-1],
}


@pytest.mark.parametrize("by_kernels", [True, False])
@pytest.mark.parametrize("lies", LAID)
@pytest.mark.parametrize("dtype", NUMPY)
def test_numpys_arrays_are_multiplied_too(
    dtype: str, lies: str, by_kernels: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not by_kernels:
        monkeypatch.setattr(ragged, "bound", lambda kind, device: None)
    for counts in COUNTS.values():
        for k, n in ((64, 64), (17, 33), (0, 4)):
            bounds = [0, *np.cumsum(counts).tolist()]
            tensors = (
                drawn((bounds[-1] + 2, k), "plain", dtype),
                drawn((len(counts), k, n), "plain", dtype),
            )
            x, w = (LAID[lies](one.numpy()) for one in tensors)
            bias = drawn((len(counts), n), "plain", dtype, 1)
            right = reference(*tensors, bounds, bias)
            found = tw.ragged_matmul(x, w, np.array(bounds), bias=bias.numpy())
            assert isinstance(found, np.ndarray)
            near(torch.from_numpy(found), right, dtype)
            out = np.full((2, *found.shape[::-1]), 7, dtype)[1].T
            tw.ragged_matmul(x, w, np.array(bounds[1:], np.int32), out=out)
            near(torch.from_numpy(out[:-2]), reference(*tensors, bounds)[:-2], dtype)
            assert (out[-2:] == 7).all()
            depths = tw.ragged_matmul(x.T, out, np.array(bounds[1:]))
            theirs = reference(tensors[0].T, torch.from_numpy(out), bounds)
            near(torch.from_numpy(depths), theirs, dtype)


def test_numpys_rows_alone_have_the_same_bits_beside_others() -> None:
    x, w = (drawn(shape, "plain", "float32").numpy() for shape in ((9, 40), (2, 40, 30)))
    every = tw.ragged_matmul(x, w, np.array([4, 9]), batch_invariant=True)
    one = tw.ragged_matmul(x[6:7], w, np.array([0, 1]), batch_invariant=True)
    np.testing.assert_array_equal(every[6:7], one)


X, W = np.zeros((6, 4), np.float32), np.zeros((2, 4, 3), np.float32)
WRONG = {
    "ends": ((X, W, np.array([7, 6])), {}, "offsets"),
    "count": ((X, W, np.array([6])), {}, "offsets.shape"),
    "whole offsets": ((X, W, np.array([1.0, 6.0])), {}, "offsets.dtype"),
    "list": ((X, W, [3, 6]), {}, "offsets=list"),
    "dtype": ((X, W.astype(np.float64), np.array([3, 6])), {}, "w.dtype"),
    "integers": ((X.astype(int), W.astype(int), np.array([3, 6])), {}, "x.dtype"),
    "swapped": ((X.astype(">f4"), W.astype(">f4"), np.array([3, 6])), {}, "x.dtype"),
    "k": ((X[:, :3], W, np.array([3, 6])), {}, "w.shape"),
    "bias": ((X, W, np.array([3, 6])), {"bias": np.zeros(3, np.float32)}, "bias"),
    "precision": ((X, W, np.array([3, 6])), {"precision": "tf32"}, "precision"),
    "out": ((X, W, np.array([3, 6])), {"out": np.zeros((6, 2), np.float32)}, "out"),
    "out shared": ((X, W, np.array([3, 6])), {"out": X[:, :3]}, "out"),
    "depths alone": ((X.T, X, np.array([6])), {"batch_invariant": True}, "batch_invariant"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_of_numpys_is_wrong_is_named(name: str) -> None:
    given, options, words = WRONG[name]
    with pytest.raises(TilewrightError, match=words):
        tw.ragged_matmul(*given, **options)


@pytest.mark.parametrize("form", [2, 3], ids=["along k", "rows"])
@pytest.mark.parametrize("name", ["x", "w", "offsets"])
def test_sparse_tensors_are_refused_by_name_also_after_dense_ones(name: str, form: int) -> None:
    given: dict[str, Any] = {
        "x": torch.ones(5, 8) if form == 2 else torch.ones(8, 5),
        "w": torch.ones(8, 4) if form == 2 else torch.ones(2, 5, 4),
        "offsets": torch.tensor([3, 8]),
    }
    tw.ragged_matmul(**given)
    with pytest.raises(OperandError, match=rf"{name}.layout=torch.sparse_coo: accepted are dense"):
        tw.ragged_matmul(**{**given, name: given[name].to_sparse()})
