"""Lists of torch tensors as columns, results of many shapes, plans by signature: no GPU needed."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.backends.cuda.test_cuda_engines import dense
from tests.backends.cuda.test_hopper_again import batch, moved
from tilewright.arrays import storage
from tilewright.arrays.aligned import aligned_offsets
from tilewright.backends.cuda.machine import addresses, arrays, cupy_lists, placing, results

torch: Any = pytest.importorskip("torch")


def drawn(count: int) -> list[Any]:
    """Matrices of every layout: rows, columns, steps, offsets, parameters, of inference mode."""
    sizes = np.random.default_rng(0).integers(1, 40, (count, 2)).tolist()
    made = []
    for i, (m, n) in enumerate(sizes):
        flat = torch.randn(4 * m * n + 7)
        with torch.inference_mode(i % 7 == 6):
            kinds = (
                lambda flat=flat, m=m, n=n, i=i: flat[i % 5 :].as_strided((m, n), (n, 1)),
                lambda flat=flat, m=m, n=n: flat[3:].as_strided((m, n), (1, m)),
                lambda flat=flat, m=m, n=n: flat.as_strided((m, n), (2 * n, 2), 1),
                lambda m=m, n=n: torch.nn.Parameter(torch.randn(m, n)),
                lambda n=n: torch.empty(0, n),
            )
            made.append(kinds[i % len(kinds)]())
    return made


def test_columns_of_tensors_are_what_each_tensor_says() -> None:
    values = drawn(200)
    found = addresses.read(values)
    assert found is not None
    address, sizes, steps = found
    assert address.tolist() == [one.data_ptr() or int(address[i]) for i, one in enumerate(values)]
    assert sizes.tolist() == [list(one.shape) for one in values]
    assert steps.tolist() == [list(one.stride()) for one in values]


def test_the_layout_of_this_torch_is_known() -> None:
    assert addresses._layout("cpu") is not None


MADE_OTHERWISE = """
import sys, torch
from tilewright.backends.cuda.machine import addresses

class Odd(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, given=(), named=None):
        name = getattr(function, "__name__", "")
        return 5 if name == "empty" else function(*given, **(named or {}))

def look(x=None):
    assert addresses._layout("cpu") is not None
    assert addresses.words_of_matrices("cpu", [torch.float32])
    return torch.zeros(()) if x is None else x.sum()

def within(block):
    with block:
        look()

x = torch.ones(3)
"""
OTHERWISE = {
    "while gradients of a function are made": "torch.func.grad(look)(x)",
    "while gradients of gradients are made": "torch.func.hessian(look)(x)",
    "while tangents are made": "torch.func.jvp(look, (x,), (x,))",
    "for a batch": "torch.func.vmap(look)(x)",
    "without writing in place": "torch.func.functionalize(look)(x)",
    "where a mode gives something else": "within(Odd())",
    "without memory": "within(torch._subclasses.FakeTensorMode())",
    "in inference mode": "within(torch.inference_mode())",
    "as halves": "torch.set_default_dtype(torch.float16); look()",
    "on another device": "torch.set_default_device('meta'); look()",
}


@pytest.mark.parametrize("otherwise", OTHERWISE)
def test_the_layout_is_known_however_the_caller_has_tensors_made(otherwise: str) -> None:
    """In a process of its own each: what is known is kept, and what is misread ends the process."""
    told = subprocess.run(
        [sys.executable, "-c", MADE_OTHERWISE + OTHERWISE[otherwise]],
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stderr


@pytest.mark.parametrize("count", [1, 60])
def test_the_first_product_of_a_process_may_be_one_of_a_gradient(count: int) -> None:
    program = f"""
import torch, tilewright
some = [torch.ones(3, 3)] * {count}
def sums(x):
    return sum(one.sum() for one in tilewright.grouped_matmul([x] * {count}, some))
print(torch.func.grad(sums)(torch.ones(3, 3)).sum().item())
"""
    told = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (told.returncode, told.stdout) == (0, f"{27.0 * count}\n"), told.stderr


def test_whether_storages_hold_their_tensors_is_read_as_each_would_say() -> None:
    flat = torch.zeros(40)
    lying = [flat.as_strided((3, 5), (13, 2), 5), flat[7:], torch.nn.Parameter(torch.ones(4, 6))]
    assert addresses.are_held([*lying, torch.empty(0, 3), torch.empty(3, 0)])
    for at, bytes_ in ((0, 4 * (5 + 2 * 13 + 4 * 2)), (1, 4 * 39), (2, 4 * 23)):
        given = [torch.clone(one) for one in lying]
        given[at] = lying[at].detach()
        held = given[at].untyped_storage()
        kept = held.nbytes()
        held.resize_(bytes_)
        said = addresses.are_held(given), storage.is_short(given[at])
        held.resize_(bytes_ + 4)
        assert said == (False, True)
        assert addresses.are_held(given) == (not storage.is_short(given[at]))
        held.resize_(kept)
    empty = torch.empty(0, 9)
    empty.untyped_storage().resize_(0)
    assert addresses.are_held([flat[None], empty])
    for odd in (flat.double(), flat.to_sparse(), flat.to(torch.complex64).conj().imag):
        assert addresses.are_held([flat, odd]) is None


def test_what_is_more_than_memory_is_left_to_its_own_methods() -> None:
    plain = torch.randn(3, 4)

    class Kind(torch.Tensor):
        pass

    unlike = [
        plain.half(),
        plain[0],
        plain[None],
        torch.ones(3, 4, dtype=torch.complex64).conj().imag,
        plain.as_subclass(Kind),
        torch._to_functional_tensor(plain),
        plain.to_sparse(),
        torch.empty(3, 4, device="meta"),
    ]
    for one in unlike:
        assert addresses.read([plain, one]) is None, type(one)
    seen: list[Any] = []
    torch.func.vmap(lambda x: (seen.append(addresses.read([plain, x])), x)[1])(plain[None])
    assert seen == [None]


def test_words_of_records_tell_apart_all_that_decides() -> None:
    base = torch.randn(400)
    one = base.as_strided((11, 7), (9, 1), 5)
    elsewhere = torch.randn(400).as_strided((11, 7), (9, 1), 20)
    unlike = [
        base.as_strided((7, 11), (9, 1), 5),
        base.as_strided((11, 7), (1, 9), 5),
        base.to(torch.int32).as_strided((11, 7), (9, 1), 5),
        base.half().as_strided((11, 7), (9, 1), 5),
        base.as_strided((11, 7, 1), (9, 1, 1), 5),
    ]
    others = [torch.randn(9).as_strided((11, 7), (0, 0)) for _ in range(300)]
    kinds = addresses.lies((one, *others)).words[5]
    assert (kinds == kinds[0]).all()  # whatever their memory held before them
    seen = addresses.lies((one, elsewhere))
    assert seen is not None
    assert seen.are_alike
    assert (seen.words[:, 0] == seen.words[:, 1]).all()
    assert (seen.storage + 4 * seen.offset).tolist() == [one.data_ptr(), elsewhere.data_ptr()]
    assert seen.sizes.T.tolist() == [[11, 7]] * 2
    assert seen.steps.T.tolist() == [[9, 1]] * 2
    for other in unlike:
        found = addresses.lies((one, other))
        assert found is not None
        assert (found.words[:, 0] != found.words[:, 1]).any()


def test_words_are_not_read_of_what_is_more_than_a_plain_tensor() -> None:
    plain = torch.randn(3, 4)

    class Kind(torch.Tensor):
        pass

    for one in (
        torch.nn.Parameter(plain),
        plain.as_subclass(Kind),
        torch.ones(3, 4, dtype=torch.complex64).conj().imag,
        plain.to_sparse(),
        torch.empty(3, 4, device="meta"),
        torch._to_functional_tensor(plain),
        plain.numpy(),
        None,
    ):
        assert addresses.lies((plain, one)) is None, type(one)


def test_autograd_is_known_to_know_of_what_requires_a_gradient() -> None:
    leaf = torch.randn(3, 4, requires_grad=True)
    made = leaf * 2
    found = addresses.lies((torch.randn(3, 4), leaf, made, torch.empty(5, 6)))
    assert found is not None
    assert (found.autograd != 0).tolist() == [False, True, True, False]


def sized(count: int, widths: int) -> results.Places:
    assert results._has_patterns(-1)
    draw = np.random.default_rng(0)
    rows, cols = draw.integers(0, 9, count), draw.integers(0, widths + 1, count)
    offsets, total = aligned_offsets(rows, cols, 4)
    return results.Places(rows, cols, offsets, total, "float32")


@pytest.mark.parametrize("way", ["one_by_one", "by_pattern"])
@pytest.mark.parametrize("widths", [1, 5, 200])
def test_results_lie_apart_and_in_order(widths: int, way: str) -> None:
    lie = sized(300, widths)
    views, address = getattr(lie, way)(-1)
    rows, cols, offsets = lie._columns
    assert [tuple(one.shape) for one in views] == list(zip(rows, cols, strict=True))
    assert all(one.is_contiguous() for one in views)
    for i, one in enumerate(views):
        one.fill_(i)
        assert one.numel() == 0 or one.data_ptr() == address + 4 * int(offsets[i])
    assert all(bool((one == i).all()) for i, one in enumerate(views))


def test_lists_of_other_sizes_share_a_pattern_and_nothing_else() -> None:
    draw, kept = np.random.default_rng(1), []
    for number in range(12):
        rows, cols = draw.integers(0, 30, 2000), draw.integers(0, 30, 2000)
        offsets, total = aligned_offsets(rows, cols, 4)
        lie = results.Places(rows, cols, offsets, total, "float32")
        views, address = lie.made(-1)
        kept.append((rows, cols, offsets, address, views))
        for one in views:
            one.fill_(number)
    assert len(results._frames) > 0
    for number, (rows, cols, offsets, address, views) in enumerate(kept):
        assert [tuple(one.shape) for one in views] == list(zip(rows, cols, strict=True))
        assert [one.storage_offset() for one in views] == offsets.tolist()
        assert all(one.is_contiguous() and bool((one == number).all()) for one in views)
        assert views[5].untyped_storage().data_ptr() == address
        needed = 4 * (int(offsets[-1]) + int(rows[-1] * cols[-1]))
        assert needed <= views[5].untyped_storage().nbytes() <= 1.13 * needed + 512


def test_results_by_patterns_are_as_those_made_one_by_one() -> None:
    assert results._has_patterns(-1)
    lie = sized(40, 9)
    for inference in (False, True):
        with torch.inference_mode(inference):
            made = [lie.made(-1) for _ in range(5)]
        assert len({address for _, address in made}) == 5
        for views, _ in made:
            whole = next(one for one in views if one.numel() > 1)
            assert whole.is_inference() is inference
            if not inference:
                assert whole._version == 0
                whole.requires_grad_().sum().backward()
                assert bool((whole.grad == 1).all())
    assert lie._pattern is not None


def test_a_new_tensor_is_the_one_asked_for() -> None:
    made = results.maker((3, 0, 5), "bfloat16", -1)()
    assert (made.shape, made.dtype, made.device.type) == ((3, 0, 5), torch.bfloat16, "cpu")


def test_a_batch_elsewhere_as_aligned_has_the_same_signature_and_others_have_not() -> None:
    work = batch()
    first = placing.signature(work)
    assert placing.signature(moved(work, 4096)) == first
    assert placing.signature(moved(work, 2)) != first
    assert placing.signature(work.take(np.arange(39))) != first
    assert placing.signature(work.take(np.arange(40)[::-1])) != first


def test_of_equal_problems_their_distance_counts() -> None:
    one = dense(4, 4, 4, "float32")
    near, far = (one.take(np.zeros(3, np.int64)) for _ in range(2))
    near = placing.moved(near, np.arange(10, dtype=np.int64) * 4096)
    far = placing.moved(far, np.arange(10, dtype=np.int64) * 8192)
    assert placing.signature(near) != placing.signature(far)


def test_one_call_tells_autograd_of_all_results_in_one_allocation() -> None:
    whole, alone = torch.zeros(40), torch.zeros(3)
    views = [*whole[:30].split(10), whole.as_strided((2, 2), (2, 1), 36), whole[5:7].detach()]
    with torch.inference_mode():
        unseen = torch.zeros(4)
    written = arrays.writer([*views, alone, unseen, np.zeros(3)])
    before = [one._version for one in (*views, whole, alone)]
    written()
    written()
    assert all(
        now._version >= then + 2 for now, then in zip((*views, whole, alone), before, strict=True)
    )
    assert whole._version == before[-2] + 4  # the detached view has the same count, unknown to it
    arrays.writer([])()


class Pointed:
    """As much of a CuPy array as its columns are read from."""

    def __init__(self, array: Any, ordinal: int = 0) -> None:
        self.dtype, self.ndim = array.dtype, array.ndim
        self.shape, self.strides = array.shape, array.strides
        self.data = SimpleNamespace(ptr=array.ctypes.data, device_id=ordinal)


def _facts(columns: Any) -> list[tuple[int, ...]]:
    every = (columns.address, columns.rows, columns.cols, columns.row, columns.col)
    return list(zip(*(column.tolist() for column in every), strict=True))


def test_columns_of_cupys_matrices_are_read_where_all_are_alike() -> None:
    base = np.zeros((6, 8), "complex64")
    lies = [base, base.T, base[1::2, ::3], base[::-1, ::-1], base[:0]]
    found = cupy_lists.columns([Pointed(x) for x in lies], 8, 0)
    assert _facts(found) == [(x.ctypes.data, *x.shape, *x.strides) for x in lies]
    between = np.ndarray((2, 2), "complex64", base, 4)
    others = (base.astype("complex128"), base[0], between)
    for odd in (*map(Pointed, others), Pointed(base, ordinal=1), SimpleNamespace()):
        assert cupy_lists.columns([Pointed(base), odd], 8, 0) is None


def test_columns_of_cupys_own_arrays_are_read_from_memory() -> None:
    """Of memory that nobody touches, so that no GPU is needed."""
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    assert cupy_lists._layout_holds()
    memory = cupy.cuda.UnownedMemory(1 << 22, 1 << 22, None, 0)

    def lying(value: Any, ordinal: int = 0) -> Any:
        held = memory if ordinal == 0 else cupy.cuda.UnownedMemory(1 << 22, 1 << 22, None, ordinal)
        at = cupy.cuda.MemoryPointer(held, value.ctypes.data - base.ctypes.data)
        return cupy.ndarray(value.shape, value.dtype, at, value.strides)

    base = np.zeros((40, 30), "complex64")
    parts = [base, base.T, base[1::2, ::3], base[5:6], base[:, 3:4].T] * 50
    values = tuple(map(lying, parts))
    found = cupy_lists._read(values, 0)
    assert found is not None
    assert [*map(tuple, found.T.tolist())] == [(x.data.ptr, *x.shape, *x.strides) for x in values]

    class Kind(cupy.ndarray):
        pass

    odd = [lying(base[0]), lying(base.view("float64")), lying(base, 1), values[0].view(Kind)]
    assert all(cupy_lists.columns((values[0], one), 8, 0) is None for one in odd)
    assert cupy_lists.columns((odd[-1], odd[-1]), 8, 0) is not None
