"""Memory of results serves the next results, and none that somebody still holds."""

from __future__ import annotations

import copy
import gc
import mmap
import os
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.arrays import reused
from tilewright.errors import DeviceMemoryError

COUNT = reused.LEAST // 4  # elements of float32 of the smallest block that is kept

needs_marking = pytest.mark.skipif(
    not hasattr(mmap, "MADV_FREE"), reason="this system takes no pages back later"
)


@pytest.fixture(autouse=True)
def _nothing_kept() -> Any:
    tw.forget()
    yield
    tw.forget()


def flat(count: int = COUNT, dtype: str = "float32") -> Any:
    return reused.flat(count, dtype, "no room for results")


def place(array: Any) -> int:
    return int(array.ctypes.data)


@needs_marking
def test_what_nobody_holds_serves_results_of_as_much_down_to_half() -> None:
    first = flat(2 * COUNT)
    at = place(first)
    first[:] = 1
    del first
    assert place(flat(2 * COUNT)) == at
    half = flat(COUNT, "int32")
    assert place(half) == at
    assert half.shape == (COUNT,)
    assert half.dtype == np.int32
    half[:] = 7  # all of it can be written
    assert int(half.sum(dtype=np.int64)) == 7 * COUNT


@needs_marking
def test_the_smallest_block_that_fits_serves_and_the_others_stay() -> None:
    small, large, larger = [flat(count) for count in (COUNT, 3 * COUNT, 4 * COUNT)]
    at = [place(one) for one in (small, large, larger)]
    del larger, large, small
    held = [flat(COUNT), flat(2 * COUNT), flat(COUNT)]
    assert [place(one) for one in held[:2]] == at[:2]
    assert place(held[2]) not in at
    assert place(flat(4 * COUNT)) == at[2]


HOLDERS = {
    "a view": lambda x: x[5:9],
    "a view of a view": lambda x: x[5:9][1:],
    "its base": lambda x: x[5:9].base,
    "the base of its base": lambda x: x.base,
    "a slice of that": lambda x: x.base[20:40].view(np.float32),
    "a memoryview": lambda x: memoryview(x)[5:9],
    "a view of another type": lambda x: x.view(np.int32)[5:9].view(np.float32),
    "what it is cast to": lambda x: x.view(np.recarray),
}


@needs_marking
@pytest.mark.parametrize("name", HOLDERS)
def test_what_somebody_holds_is_not_served_again(name: str) -> None:
    whole = flat()
    at = place(whole)
    whole[:] = 3
    held = HOLDERS[name](whole)
    del whole
    gc.collect()
    others = [flat(), flat()]
    for other in others:
        assert place(other) != at
        other[:] = 9
    assert set(np.asarray(held).view(np.float32).reshape(-1)[:4].tolist()) == {3.0}
    del held
    gc.collect()
    assert place(flat()) == at


@needs_marking
def test_what_is_below_the_memory_cannot_be_reached() -> None:
    assert flat().base.base is None


@pytest.mark.parametrize(
    "made", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))]
)
def test_copies_are_apart(made: Any) -> None:
    whole = flat()
    whole[:] = 2
    other = made(whole)
    del whole
    flat()[:] = 5
    assert float(other.min()) == float(other.max()) == 2


@needs_marking
def test_no_more_is_kept_than_the_bound_and_forget_gives_all_back() -> None:
    each = reused.MOST // 4 // 3
    held = [flat(each) for _ in range(5)]
    assert len({place(one) for one in held}) == 5
    held.clear()
    assert sum(map(len, reused._kept)) <= reused.MOST
    assert len(reused._kept) == 3
    tw.forget()
    assert not reused._kept


def test_small_results_are_numpys_own() -> None:
    assert flat(COUNT - 1).flags.owndata


@pytest.mark.parametrize("count", [2**60, 2**61])
def test_what_no_system_has_is_refused_in_words(count: int) -> None:
    with pytest.raises(DeviceMemoryError, match="no room for results"):
        flat(count)


def test_where_pages_cannot_be_marked_nothing_is_kept() -> None:
    class Locked:
        def __len__(self) -> int:
            return reused.LEAST

        def madvise(self, advice: int) -> None:
            raise OSError(22, "the process locks its memory")

    locked: Any = Locked()
    reused._take_back(locked)
    assert not reused._kept


def test_threads_never_have_the_same_memory() -> None:
    stop, wrong = threading.Event(), []

    def work(number: int) -> None:
        while not stop.is_set() and not wrong:
            one = flat()
            one[:: 1 << 18] = number
            one[-1] = number
            if not (one[:: 1 << 18] == number).all() or one[-1] != number:
                wrong.append(number)

    with ThreadPoolExecutor(4) as pool:
        for number in range(4):
            pool.submit(work, number)
        threading.Timer(0.3, stop.set).start()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_writes_to_memory_of_its_own() -> None:
    held = flat()
    held[:] = 4
    flat()[:] = 1  # kept by both
    child = os.fork()
    if not child:
        mine = flat()
        mine[:] = 8
        held[:] = 8
        os._exit(int(float(mine[-1]) != 8))
    assert os.waitpid(child, 0)[1] == 0
    assert float(held.min()) == 4


@needs_marking
def test_a_batch_made_again_lies_where_the_last_one_lay_unless_that_is_held() -> None:
    rng = np.random.default_rng(0)
    a = [rng.standard_normal((1024, 8), dtype=np.float32) for _ in range(9)]
    b = [rng.standard_normal((8, 1024), dtype=np.float32) for _ in range(9)]
    expected = [x @ y for x, y in zip(a, b, strict=True)]
    first = tw.grouped_matmul(a, b, device="host", kernel="native")
    kept, at = first[4], place(first[0])
    del first
    second = tw.grouped_matmul(a, b, device="host", kernel="native")
    assert place(second[0]) != at
    assert np.allclose(kept, expected[4], atol=1e-4)
    del kept
    third = tw.grouped_matmul(a, b, device="host", kernel="native")
    assert place(third[0]) == at
    for found in (second, third):
        for x, y in zip(found, expected, strict=True):
            assert np.allclose(x, y, atol=1e-4)
