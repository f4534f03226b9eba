"""Which products of a batch NumPy's BLAS runs faster than a grouped kernel: large ones, and a few.

A kernel that reads operands where they lie is made for many small products. One that is large in
every direction is a BLAS's home game, which packs both operands: 2000 x 2000 x 2000 on two cores
ran at 283 GFLOP/s there and at 198 in the kernel, 768 to 1400 at 1.2 to 1.5 times its rate, 512 and
below at the same or less.

A launch wakes threads and waits for them, which takes as long as fifty small products in a loop;
so the few are a loop's, until a kernel saves more than the launch costs.

>>> import numpy as np
>>> large(np.array([2000, 8, 4000]), np.array([2000, 8, 4000]), np.array([2000, 8, 20])).tolist()
[True, False, False]
>>> is_for_a_loop(3, 1e5, 3e-5), is_for_a_loop(1000, 1e5, 3e-5), is_for_a_loop(20, 1e9, 3e-5)
(True, False, False)
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
SIDE = 256  # a side narrower than this leaves a BLAS little to gain from packing
LARGE = 2.0 * 900**3  # operations

# Seconds of two cores. What a kernel saves of an operation: a loop of 40 products takes 6e-12, one
# of a thousand, whose results no longer lie in a cache, 13e-12, the kernel 4e-12.
_MANY, _SAVED, _SAVED_OF_MANY = 256, 2e-12, 8e-12
# Of lists that are read in machine code at each call (backends/host/lists.py), beside a loop of
# `a.dot(b)` on two cores: seconds of a product and of an operation, of which no more than `SMALL`
# of a product count, as a BLAS is no slower with larger ones; less what any such call takes.
SMALL = 7e5
_LISTED, _SAVED_OF_LISTED, _CALL = 5e-7, 6e-12, 4e-5
# The same where results are there, so that neither makes any.
_LISTED_INTO, _CALL_INTO = 1.5e-7, 1.6e-5
# The host's own kernels leave a product to a BLAS that is large and no narrower than this: one of
# 300 x 700 x 5000 takes them as long, or less. Seconds of an operation that they lose with those
# that are.
SIDE_OF_LISTS, _LOST = 512, 1e-12
# Elements of a result: NumPy's `dot` fills it with zeros first, which from here on takes longer
# than `matmul` takes to begin: for 2000 x 4 x 2000 three times as long as the whole product.
ZEROED = 6_000
# What a product costs a loop beyond a kernel's tile, and beyond that where a scale, a bias or an
# activation makes passes of its own.
_PRODUCT, _PASSES = 0.25e-6, 1e-6
# Multiplications of one product up to which torch's BLAS is level with the others, or ahead.
MOST_OF_TORCH = 768**3


def large(m: Ints, n: Ints, k: Ints, side: int = SIDE) -> npt.NDArray[np.bool_]:
    """A flag a product."""
    narrow = np.minimum(np.minimum(m, n), k)
    flops = 2.0 * m * n.astype(np.float64) * k
    found: npt.NDArray[np.bool_] = (narrow >= side) & (flops >= LARGE)
    return found


def spared(m: Ints, n: Ints, k: Ints) -> npt.NDArray[np.bool_]:
    """A flag a product: those that the host's own kernels leave to a BLAS, where the others save
    less beside it than these lose."""
    found = large(m, n, k, SIDE_OF_LISTS)
    flops = 2.0 * m * n.astype(np.float64) * k
    is_worth = lost_by_lists(len(m), float(flops.sum()), float(flops[found].sum())) > 0
    return found if is_worth else np.zeros(len(m), bool)


def saved(count: int, flops: float) -> float:
    """Seconds that a grouped kernel saves a loop of NumPy's by its arithmetic alone."""
    return (_SAVED if count < _MANY else _SAVED_OF_MANY) * flops


def rule_of_lists(*, into: bool = False, plain: bool = True) -> tuple[float, float, float]:
    """What reading and cutting products anew saves a loop of NumPy's: seconds of each product, of
    each operation, and what any such call takes. `into` results that are there; not `plain` where
    a bias or an activation makes passes of its own."""
    each, call = (_LISTED_INTO, _CALL_INTO) if into else (_LISTED, _CALL)
    return (each if plain else each + _PASSES), _SAVED_OF_LISTED, call


def saved_by_lists(count: int, flops: float) -> float:
    """Seconds that it saves of `count` plain products, everything included; of each product at most
    `SMALL` operations are in `flops`."""
    each, operation, call = rule_of_lists()
    return each * count + operation * flops - call


def lost_by_lists(count: int, flops: float, large: float) -> float:
    """Seconds that a BLAS saves beside kernels for all `count` products, of whose operations
    `large` are its home game: its threads, which look for more of them long after, take the cores
    from kernels that come next, so that it gets those where the others are few."""
    return _LOST * large - saved(count, flops - large)


def is_for_a_loop(count: int, flops: float, launch: float, *, plain: bool = True) -> bool:
    """Whether `count` products of views made beforehand end before a kernel that takes `launch`
    seconds to be launched and waited for would."""
    more = _PRODUCT if plain else _PRODUCT + _PASSES
    return more * count + saved(count, flops) < launch
