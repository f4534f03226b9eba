"""Multiplies plain lists of torch's tensors at once; imported where the first of them is met.

On a processor that is a loop of torch's own products: they are differentiable themselves, and
nothing put around them makes them faster. Machine code looks at the tensors and calls torch
(grouped_listed_tensors.py), in 0.94 to 1.05 of a loop's time (Zen 4). Until that is compiled, and
for lists that it does not take, guards that torch's compiler puts before its code say whether all
are plain matrices: 45 ns a tensor, where five attributes of a product took 400 beside the 1.2 us of
a small one. From three products on they are asked once those are made: torch itself refuses nested
tensors, of which a guard ends the process and whose attribute takes 70 ns.
Guards are of a kind: a dtype, gradients wanted or not. Of lists on a GPU plans are kept
(grouped_plans_gpu.py). Whether a storage has shrunk since is asked of long lists and of those with
a bias alone: of a few products it took as long as they (0.5 us a tensor), and torch's own loop does
not ask either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from tilewright.arrays import torch_private as private
from tilewright.arrays.storage import is_short
from tilewright.backends.cuda.machine import addresses
from tilewright.calls.grouped_listed_tensors import Products, missed
from tilewright.inputs.as_tuple import as_tuple
from tilewright.inputs.tensors import WITH_COMPLEX as DTYPES
from tilewright.inputs.tensors import is_nested
from tilewright.inputs.watched import is_anything_watched
from tilewright.planning.host_part import MOST_OF_TORCH

_layout, _kind = attrgetter("layout"), attrgetter("dtype", "device")
# By names of this module's own: a small product takes 1.4 us, an attribute of torch's 0.03.
_STRIDED, _multiply, _is_traced = torch.strided, torch.mm, torch.compiler.is_dynamo_compiling
_transform, _function_modes = private.transform(torch), private.function_modes(torch)
_FEW = 48  # up to here products are looked at one after another
_GUARDED, _WITH_GUARDS = 8, 256  # products that one guard looks at, and a call of them
# By how many products: whether all their operands are matrices in the host's memory of one kind
# (`_kind_of`), differ from each other, and nothing changes what torch does.
_Guards = list[Callable[..., bool]]
_guards: dict[tuple[Any, ...], _Guards] = {}
_usual: _Guards = []  # those of the last call, which are asked first: to find others takes 0.4 us
_SOME = 128  # products between two looks at whether machine code is there
_since = 0
_ways: dict[type, Any] = {}


def _not_yet(a: Any, b: Any) -> list[Tensor] | None:
    """Stands for the machine code until that is compiled."""
    return None


_products: Products = _not_yet
_REFUSALS = (RuntimeError, IndexError, TypeError, AttributeError)


def join(ways: dict[type, Any]) -> None:
    """Say in this table of types what multiplies lists of tensors: `few`, or `listed` once its
    machine code is there."""
    global _ways
    _ways = ways
    way = few if _products is _not_yet else listed
    ways.update({Tensor: way, Parameter: way})


def listed(a: Any, b: Any) -> list[Tensor] | None:
    """What `few` makes, in machine code where that takes all of them."""
    if _is_traced():
        return None
    try:
        found = _products(a, b)
    except _REFUSALS:
        return None  # checked one after another, the first that does not fit is named
    return few(a, b) if found is None else found


def _look(a: Any) -> None:
    """Let `listed` take over if its machine code is there by now; lists of the host ask."""
    global _products, _since
    _since, gone = 0, _since
    found = missed(gone) if _products is _not_yet and a and a[0].is_cpu else None
    if found is not None:
        _products = found
        join(_ways)


def few(a: Any, b: Any) -> list[Tensor] | None:
    """Every a[i] @ b[i], or None where the lists are to be checked like any others.

    Takes lists or tuples that are not empty. Sizes are judged by torch and few tensors are looked
    at one after another, as nothing else costs so little.
    """
    global _since
    count = len(a)
    if (type(b) is not list and type(b) is not tuple) or len(b) != count or _is_traced():
        return None
    if _transform() is not None:
        return None  # a guard ends the process where what is mapped over is nested
    guards, made = _usual, None
    _since += count
    try:
        if _since >= _SOME:
            _look(a)
        # One and two by name, as a loop and its iterators take 0.3 us: a tenth of two products.
        if count == 1:
            x, y = a[0], b[0]
            if guards and not (x.is_nested or y.is_nested) and guards[1](x, y):
                return [_multiply(x, y)]
        elif count == 2:
            x, y, u, v = a[0], b[0], a[1], b[1]
            nested = x.is_nested or y.is_nested or u.is_nested or v.is_nested
            if guards and not nested and guards[2](x, u, y, v):
                return [_multiply(x, y), _multiply(u, v)]
        elif (
            count <= (_WITH_GUARDS if guards else _FEW)
            and a[0].is_cpu
            and a[0].dtype in DTYPES
            and not _function_modes()  # which may multiply nested tensors
        ):
            a, b = (*a,), (*b,)  # as `as_tuple`: another thread may change the lists
            if not len(a) == len(b) == count:
                return None
            made = [*map(_multiply, a, b)]
            if guards[count](*a, *b) if count < len(guards) else _do_guards_pass(a, b, guards):
                return made
        return _unusual(a, b, count, made) if a[0].is_cpu else _on_gpu(a, b)
    except _REFUSALS:
        return None  # checked one after another, the first that does not fit is named


def product(x: Any, y: Any) -> Tensor | None:
    """x @ y of two matrices of a kind that has guards, where torch's product is at least level with
    a plan's; None where they are to be checked like any others."""
    global _usual
    if _is_traced() or _transform() is not None:
        return None
    try:
        if x.is_nested or y.is_nested:
            return None
        guards = _usual
        if not guards or not guards[1](x, y):
            guards = _guards.get(_kind_of(x, y), [])
            if not guards or not guards[1](x, y):
                return None
            _usual = guards
        if x.numel() * y.size(1) > MOST_OF_TORCH or is_short(x) or is_short(y):
            return None
        return _multiply(x, y)
    except _REFUSALS:
        return None


def meet(x: Tensor, y: Tensor) -> None:
    """Make guards for matrices like these, of which a product was made by all checks."""
    kind = _kind_of(x, y)
    if kind not in _guards:
        _make_guards(kind)


def _unusual(a: Any, b: Any, count: int, made: list[Tensor] | None) -> list[Tensor] | None:
    """The same for tensors of another kind than the last call's. `made`: their products, where
    they are made by now."""
    global _usual
    kind = _kind_of(a[0], b[0])
    if kind[0] not in DTYPES:
        return None
    if made is None:
        a, b = as_tuple(a), as_tuple(b)  # another thread may change the lists
        if not len(a) == len(b) == count:
            return None
    guards = _guards.get(kind)
    if guards is not None and guards is not _usual:
        _usual = guards
        if made is None:
            if _are_guarded(a, b, guards):
                return [*map(_multiply, a, b)]
        elif _do_guards_pass(a, b, guards):
            return made
    if count > _FEW:
        found = loop(a, b, None, made)
    else:
        found = _asked(a, b, made or [*map(_multiply, a, b)], count)
    if found is not None and guards is None:
        _make_guards(kind)
        _usual = _guards.get(kind, _usual)
    return found


def _kind_of(x: Tensor, y: Tensor) -> tuple[Any, ...]:
    return (x.dtype, type(x), x.requires_grad, type(y), y.requires_grad)


def _are_guarded(a: Any, b: Any, guards: _Guards) -> bool:
    """Whether guards know them all, of which products are not made yet."""
    if (
        not guards
        or len(a) > _WITH_GUARDS
        or True in map(is_nested, a)
        or True in map(is_nested, b)
    ):
        return False
    return _do_guards_pass(a, b, guards)


def _do_guards_pass(a: Any, b: Any, guards: _Guards) -> bool:
    """Whether guards know them all, none of which is nested."""
    if not guards:
        return False
    for first in range(0, len(a), _GUARDED):
        part = a[first : first + _GUARDED]
        if not guards[len(part)](*part, *b[first : first + _GUARDED]):
            return False
    return True


def _asked(a: Any, b: Any, found: list[Tensor], count: int) -> list[Tensor] | None:
    """The same by the tensors' own attributes, whatever they are."""
    # Loops of one question each: in the loop of the products they take twice the time.
    for one in a:
        if one.layout is not _STRIDED:
            return None
    for one in b:
        # Of a second operand on the meta device torch.mm makes whatever lies in memory.
        if one.layout is not _STRIDED or not one.is_cpu:
            return None
    dtype = found[0].dtype
    for one in found:
        if one.dtype is not dtype or not one.is_cpu:
            return None
    # Another thread may change the lists.
    return found if len(found) == count and dtype in DTYPES else None


def _make_guards(kind: tuple[Any, ...]) -> None:
    """Guards for lists of this kind: made where nothing special is at work."""
    dtype, *sides = kind
    if dtype not in DTYPES or not torch.is_grad_enabled() or torch.is_inference_mode_enabled():
        return
    if not {sides[0], sides[2]} <= {Tensor, Parameter} or is_anything_watched(torch):
        return
    guards: _Guards = [lambda: False]
    for count in range(1, _GUARDED + 1):
        some = [
            torch.empty((1, 1), dtype=dtype, device="cpu").as_subclass(type_).requires_grad_(wants)
            for type_, wants in zip(sides[::2], sides[1::2], strict=True)
            for _ in range(count)
        ]
        unknown = [[None, None]] * (2 * count)
        any_lie = {"dynamic_dims_sizes": unknown, "dynamic_dims_strides": unknown}
        guards.append(private.tensor_guards(torch)(*some, **any_lie).check)
        if not guards[-1](*some):
            return
    _guards[kind] = guards


def loop(a: Any, b: Any, bias: Any, made: list[Tensor] | None = None) -> list[Tensor] | None:
    """The same of any number on a processor, with a bias each; None for what is anything else.
    `made`: the products, where they are made by now."""
    if _is_traced():
        return None
    given = (a, b) if bias is None else (bias, a, b)
    if not set(map(type, given)) <= {list, tuple}:
        return None
    operands = [as_tuple(part) for part in given]  # another thread may change the lists
    a, b = operands[-2:]
    bias = None if bias is None else operands[0]
    if set(map(len, operands)) != {len(a)}:
        return None
    if not a or not isinstance(a[0], Tensor) or not a[0].is_cpu or a[0].dtype not in DTYPES:
        return None
    try:
        held = (*a, *b, *(bias or ()))
        within = addresses.are_held(held)
        if within is False or (within is None and any(map(is_short, held))):
            return None
        found = made or list(map(_multiply if bias is None else torch.addmm, *operands))
        alike = within or _are_alike(held)
        if alike and found[0].dtype in DTYPES and (bias is None or _fit(bias, found)):
            return found
    except _REFUSALS:
        pass  # checked one after another, the first that does not fit is named
    return None


def _on_gpu(a: Any, b: Any) -> list[Tensor] | None:
    """What lies on a GPU is launched there; what lies elsewhere is checked."""
    if not a[0].is_cuda:
        return None
    from tilewright.calls import grouped_plans_gpu

    return grouped_plans_gpu.products(a, b)


def _are_alike(values: Sequence[Tensor]) -> bool:
    """Whether these are dense tensors of one dtype and device, which subclasses may be."""
    return set(map(_layout, values)) == {_STRIDED} and len(set(map(_kind, values))) == 1


def _fit(bias: Sequence[Tensor], made: Sequence[Tensor]) -> bool:
    """Whether each is a vector of a result's columns, where torch would spread one number, too."""
    pairs = zip(bias, made, strict=True)
    return all(x.dim() == 1 and (x.numel() != 1 or y.shape[1] == 1) for x, y in pairs)
