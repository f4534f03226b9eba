"""What lies over itself is told apart from what only looks like it, by counting places."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from tilewright import grouped_matmul, matmul
from tilewright.errors import OverlapError
from tilewright.inputs.overlap import overlaps_itself


def counted(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """The same by listing every place."""
    places = [
        sum(at * step for at, step in zip(index, strides, strict=True))
        for index in itertools.product(*map(range, shape))
    ]
    return len(set(places)) < len(places)


def test_a_list_that_shares_memory_is_told_in_the_words_of_one_product() -> None:
    words = "out: shares memory with a{}; accepted is an array apart from every input"
    one = np.ones((4, 4), np.float32)
    with pytest.raises(OverlapError) as raised:
        matmul(one, one.copy(), out=one, device="host")
    assert str(raised.value) == words.format("")
    with pytest.raises(OverlapError) as raised:
        grouped_matmul([one], [one.copy()], out=[one], device="host")
    assert str(raised.value) == words.format("[0]")


def test_strides_of_two_and_three_dimensions_are_judged_by_where_elements_lie() -> None:
    draw, seen = random.Random(0), {True: 0, False: 0}
    for _ in range(3000):
        count = draw.choice((1, 2, 3))
        shape = tuple(draw.randrange(0, 6) for _ in range(count))
        strides = tuple(draw.randrange(-4, 14) for _ in range(count))
        wanted = counted(shape, strides)
        assert overlaps_itself(shape, strides) is wanted, (shape, strides)
        seen[wanted] += 1
    assert min(seen.values()) > 500


@pytest.mark.parametrize(
    ("shape", "strides", "wanted"),
    [
        ((8, 8), (1, 1), True),
        ((2**31, 2**31), (2**31, 1), False),
        ((2**31, 2**31), (2**31 - 1, 1), True),
        ((3, 2), (2, 3), False),  # interleaved: rows and columns cross, no two elements meet
        ((4, 2), (2, 3), False),
        ((4, 3), (2, 3), True),
        ((5, 1), (0, 7), True),
        ((1, 1, 1), (0, 0, 0), False),
    ],
)
def test_known_layouts(shape: tuple[int, ...], strides: tuple[int, ...], wanted: bool) -> None:
    assert overlaps_itself(shape, strides) is wanted


@pytest.mark.parametrize("strides", [(1, 1), (0, 1), (1, 0), (2, 1)])
def test_a_tensor_of_the_processor_that_overlaps_itself_is_never_written(
    strides: tuple[int, int],
) -> None:
    torch = pytest.importorskip("torch")
    a, memory = torch.ones(4, 4), torch.full((40,), 7.0)
    out = memory.as_strided((4, 4), strides)
    with pytest.raises(OverlapError, match=r"out\.strides=.*overlaps itself"):
        matmul(a, a, out=out)
    with pytest.raises(OverlapError, match=r"out\[0\]\.strides=.*overlaps itself"):
        grouped_matmul([a], [a], out=[out])
    assert bool((memory == 7).all())


def test_nothing_of_the_memory_is_read() -> None:
    """Sizes of petabytes are judged without any."""
    assert not overlaps_itself((2**20, 2**20, 2**9), (2**29, 2**9, 1))
    assert not overlaps_itself((2, 2**40), (2**41 + 1, 2))
    assert overlaps_itself((2**20, 2**20), (np.int64(3), np.int64(1)))
