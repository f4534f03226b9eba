"""Ragged products of tensors in the host's memory by the kernels of `backends/host/ragged.py`.

What a product asks of its tensors is asked once: of those that lie alike (sizes but the ragged one,
strides, dtype) the launch is kept, with the guard that torch's compiler puts before its code: one
call that looks at all tensors and at who looks on, in 0.3 us. A call is then the guard, a new
result and the kernels: 1.5 us and its products, where torch's loop takes 6 us a group. Where torch
is sooner a call is the guard and torch: what else it did was 2 us of one that follows another, and
7 where the product's matrices had pushed it out of the caches meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tilewright import remember
from tilewright.arrays import torch_private as private
from tilewright.arrays.storage import LOW, address, is_short
from tilewright.backends.cuda.machine import addresses
from tilewright.backends.host import ragged as host
from tilewright.backends.host.compiled import kernels, why_none
from tilewright.facts.verdict import Proposal, Rejected, Verdict
from tilewright.inputs.devices import host as the_host
from tilewright.inputs.tensors import is_nested, written
from tilewright.inputs.watched import is_anything_watched
from tilewright.remember import Shelf
from tilewright.torch_ops.eager import PLAIN, is_eager
from tilewright.wording import counted

NAMES = {
    torch.float32: "float32",
    torch.float64: "float64",
    torch.bfloat16: "bfloat16",
    torch.float16: "float16",
}
_new, _threads = private.empty_strided_here(torch), torch.get_num_threads
_forward, _tracing = private.forward_ad(torch), torch.compiler.is_dynamo_compiling
_grouped = private.grouped(torch)
WIDTHS = {torch.float32: 4, torch.float16: 8, torch.bfloat16: 8}  # elements of 16 bytes
_REFUSALS = (RuntimeError, AttributeError, TypeError, IndexError)
_AROUND = 2.5e-5  # seconds of Python around gradients that torch's own, in C++, do without
_LOOP = {4: 6e-6, 8: 6e-6, 2: 1.4e-5}  # seconds of a group in torch's loop, by width
_THEIRS = (host.FASTER, host.FASTER_WHOLE)
_OBJECTS = tuple.__basicsize__  # bytes before the objects of a tuple
_UNASKED = 63  # calls in a row that torch gets without a look at the sizes of their groups
_ALIKE = 16  # of so many rows one more or less is no reason to look
Key = tuple[Any, ...]


class Launch:
    """A product of tensors that lie alike: its kernels, and the sizes of its result."""

    __slots__ = (
        "along",
        "asked",
        "asks",
        "begins",
        "bound",
        "dtype",
        "how",
        "is_torchs",
        "is_torchs_to_follow",
        "n",
        "of_rows",
        "shape",
        "slack",
        "strides",
        "torchs_rows",
        "unasked",
        "whole",
        "within",
    )

    def __init__(self, bound: host.Bound, x: Tensor, w: Tensor, offsets: Tensor) -> None:
        self.bound, self.dtype, self.asks = bound, x.dtype, host.ASKS
        self.torchs_rows = self.slack = self.unasked = 0
        self.of_rows, self.n = w.dim() == 3, w.shape[-1]
        self.along = 0 if self.of_rows else 1  # of x
        m = x.shape[0]
        self.is_torchs = takes(x, w, offsets)
        alone = 3 * _LOOP[x.element_size()] * offsets.shape[0]
        self.is_torchs_to_follow = self.is_torchs and alone < _AROUND
        self.shape = (offsets.shape[0], m, self.n)
        self.begins = addresses.begins("cpu")
        self.how = x.element_size(), offsets.dtype is torch.int64
        ragged = kernels("ragged")
        self.within, self.whole = ragged.are_within, ragged.are_whole
        self.asked = ragged.asked(self.begins or 0, *self.how)
        self.strides = (self.n, 1) if self.of_rows else (m * self.n, self.n, 1)

    def is_short(self, given: tuple[Any, ...]) -> bool:
        """Whether the storage of one of x, w, offsets and a bias has shrunk: 0.2 us for all."""
        if self.begins is None:
            return any(map(is_short, given))
        return not self.within(id(given), self.asked)

    def is_still_torchs(self, x: Any) -> bool:
        """Whether torch was sooner for about as many rows in one of the last calls: once more."""
        if abs(x.size(self.along) - self.torchs_rows) > self.slack:
            return False
        self.unasked -= 1
        return self.is_torchs

    def is_whole(self, given: tuple[Any, ...], wants: bool) -> bool:
        """Whether torch may have x, w and offsets: it reads these as we do, and leaves nothing out.

        torch asks nothing of offsets. Rows behind the last it leaves undefined in the result, and
        in gradients of either form, which `wants` tells of.
        """
        needs_all = self.of_rows or wants
        if self.begins is None:
            ends, t = given[2].tolist(), given[0].size(self.along)
            right = ends == sorted(ends) and ends[0] >= 0 and ends[-1] <= t
            return right and (ends[-1] == t or not needs_all) and not self.is_short(given)
        objects, item = id(given) + _OBJECTS, self.how[0]
        asked = self.begins, item, self.along, self.shape[0], needs_all
        return bool(self.whole(objects, *asked))

    def made(self, x: Any, w: Any, offsets: Any, bias: int = 0) -> Any:
        """The product, or what stands in the way: `FASTER`, `WRONG` .., a number.

        Where the last call was torch's no memory is taken before this one is known to be ours.
        """
        t = x.size(self.along)
        if not self.of_rows and w.shape[0] != t:
            return host.WRONG
        places, asks = (x.data_ptr(), w.data_ptr(), offsets.data_ptr()), host.ASKS
        if min(places) < LOW:
            places = address(x), address(w), address(offsets)
        given = (*places, bias)
        if self.asks == host.LOOKS:
            found = self.bound(*given, 1, t, _threads(), host.LOOKS)
            if found in _THEIRS:
                self.torchs_rows, self.slack, self.unasked = t, t // _ALIKE, _UNASKED
            if found != host.OURS:
                return found
            asks = host.MUST
        shape = (t, self.n) if self.of_rows else self.shape
        out = _new(shape, self.strides, self.dtype)
        found = self.bound(*given, out.data_ptr(), t, _threads(), asks)
        self.asks = host.LOOKS if found in _THEIRS else host.ASKS
        return found or out


_launches: Shelf[Key, Launch] = Shelf("ragged products of tensors of processors", most=8 << 20)
# The guard of tensors that lie alike, their launch, and whether one of them asks for gradients.
_Guarded = tuple[Callable[..., bool], Launch, bool]
_guards: Shelf[Key, _Guarded] = Shelf("guards of ragged products of processors", most=4 << 20)
# Those of the last calls, without a bias and with one: a product and its gradients are three.
_usual: tuple[list[_Guarded], list[_Guarded]] = ([], [])
_LAST = 4
for _guarded in _usual:
    remember.forgets(_guarded.clear)


def again(
    x: Any, w: Any, offsets: Any, bias: Any, followed: Callable[..., Any], theirs: Any = None
) -> Any:
    """The product of plain tensors of processors that lie as others did before them, or None.

    None, too, where somebody but autograd looks on, or offsets are wrong. Where gradients are
    wanted it is `followed(x, w, offsets, bias, product)`; or `theirs(x, w, offsets)`, if given,
    where groups are so few that torch's own gradients are sooner there. Where `theirs` is given and
    torch was sooner in calls like this one, torch gets it, if its offsets are right and every row
    has a group.
    """
    if _tracing() or _forward._current_level >= 0:
        return None
    given = (x, w, offsets) if bias is None else (x, w, offsets, bias)
    try:
        if True in map(is_nested, given):
            return None
        for known in _usual[bias is not None]:
            if known[0](*given):
                break
        else:
            if (known := _found(given, bias)) is None:
                return None
        _, launch, wants = known
        wants = wants and torch.is_grad_enabled()
        if theirs is not None:
            follows = wants and launch.is_torchs_to_follow
            may = follows or (launch.unasked and launch.is_still_torchs(x))
            if may and launch.is_whole(given, wants):
                return theirs(x, w, offsets) if wants else _grouped(x, w, offs=offsets)
        if launch.is_short(given):
            return None
        place = 0 if bias is None else address(bias)
        found = launch.made(x, w, offsets, place)
        if type(found) is int:
            found = _otherwise(found, launch, given, wants)
    except _REFUSALS:  # no tensor, or none with memory
        return None
    if wants and found is not None:
        return followed(x, w, offsets, bias, found)
    return found


def _found(given: tuple[Any, ...], bias: Any) -> Any:
    """What is known of tensors that lie otherwise than the last call's."""
    x = given[0]
    if not x.is_cpu or x.dtype not in NAMES:
        return None
    known = _guards.get(_guard_key(given, bias))
    if known is None or not known[0](*given):
        return None
    _put_first(_usual[bias is not None], known)
    return known


def _put_first(usual: list[_Guarded], known: _Guarded) -> None:
    """Who reads the list meanwhile sees some of it."""
    usual[:] = [known, *usual][:_LAST]


def _otherwise(why: int, launch: Launch, given: tuple[Any, ...], wants: bool) -> Any:
    """By torch, where that is faster and takes it; `wants`: gradients."""
    if why not in _THEIRS or not launch.is_torchs or len(given) > 3:
        return None
    x, w, offsets = given
    if wants:
        with torch.no_grad():
            found = _grouped(x, w, offs=offsets)
    else:
        found = _grouped(x, w, offs=offsets)
    if why == host.FASTER:
        found[int(offsets[-1]) :].zero_()
    return found


def remembered(x: Tensor, w: Tensor, offsets: Tensor, bias: Tensor | None) -> None:
    """Have `again` know tensors that lie as these do, if there is a launch for them.

    Nobody but autograd may look on.
    """
    given = (x, w, offsets) if bias is None else (x, w, offsets, bias)
    if not is_eager(*given) or is_anything_watched(torch) or torch.is_inference_mode_enabled():
        return
    if not all(one.is_contiguous() for one in given[2:]):  # kernels read them by address
        return
    launch = _launches.get(_key(x, w, offsets, bias))
    key = _guard_key(given, bias)
    if launch is None or key in _guards or any(one.is_inference() for one in given):
        return
    sizes: list[list[int | None]] = [list(one.shape) for one in given]
    sizes[0][0 if launch.of_rows else 1] = None
    if not launch.of_rows:
        sizes[1][0] = None
    how = {
        "dynamic_dims_sizes": sizes,
        "dynamic_dims_strides": [list(one.stride()) for one in given],
    }
    check = private.tensor_guards(torch)(*given, **how).check
    if check(*given):
        wants = any(one.requires_grad for one in given)
        _guards.keep(key, (check, launch, wants), size=1 << 12)


def _guard_key(given: tuple[Any, ...], bias: Any) -> Key:
    kinds = tuple((type(one), one.requires_grad) for one in given)
    x, w, offsets = given[:3]
    return (kinds, *_key(x, w, offsets, bias))


def _is_plain(one: Tensor) -> bool:
    """Whether elements lie where a tensor says, as it has them."""
    dense = type(one) in PLAIN and one.layout is torch.strided
    return dense and not one.is_neg() and not is_short(one)


def product(x: Tensor, w: Tensor, offsets: Tensor, bias: Tensor | None) -> Any:
    """A product of checked tensors, or None where its kernels are not there or another is faster.

    None, too, for wrong offsets.
    """
    if not all(map(_is_plain, (x, w, offsets))):
        return None
    offsets = offsets.contiguous()
    place = 0
    if bias is not None:
        if not _is_plain(bias) or not bias.is_contiguous():
            return None
        place = address(bias)
    key = _key(x, w, offsets, bias)
    launch = _launches.get(key)
    if launch is None:
        bound = host.bound(_kind(x, w, offsets, bias, None), the_host())
        if bound is None:
            return None
        launch = _launches.keep(key, Launch(bound, x, w, offsets), size=1 << 10)
    found = launch.made(x, w, offsets, place)
    return None if type(found) is int else found


def product_into(x: Tensor, w: Tensor, offsets: Tensor, bias: Tensor | None, out: Tensor) -> bool:
    """The same into `out`; whether it was."""
    given = (x, w, offsets, out) if bias is None else (x, w, offsets, out, bias)
    if not all(map(_is_plain, given)):
        return False
    if bias is not None and not bias.is_contiguous():
        return False
    offsets = offsets.contiguous()
    if out.element_size() == 2 and out.stride(-1) != 1:
        return False
    bound = host.bound(_kind(x, w, offsets, bias, out), the_host())
    if bound is None:
        return False
    t = x.shape[0] if w.dim() == 3 else x.shape[1]
    place = 0 if bias is None else address(bias)
    places = (address(x), address(w), address(offsets), place, address(out))
    if bound(*places, t, _threads()) != host.DONE:
        return False
    written(out)
    return True


def judged(x: Tensor, w: Tensor, offsets: Tensor, bias: Tensor | None) -> Verdict:
    """Who would multiply these: the kernels of the host, or a loop of torch's BLAS, and why."""
    width = WIDTHS.get(x.dtype)
    whole = bias is None and width is not None and is_aligned(x, width) and is_aligned(w, width)
    loop = "torch's own product of groups" if whole else "a loop of torch's products"
    offsets, why, found = offsets.contiguous(), host.why_not_yet(the_host(), NAMES[x.dtype]), None
    bound = None if why else host.bound(_kind(x, w, offsets, bias, None), the_host())
    if bound is not None:
        found = bound.weighed(offsets.data_ptr(), x.shape[0 if w.dim() == 3 else 1], _threads())
    if found is None:
        refused = Rejected("native", why or why_none())
        return Verdict(the_host(), (Proposal("torch", the_host(), None, loop),), (refused,))
    tiles = f"{counted(found.tiles, 'tile')} of at most {found.rows} x {found.columns}"
    how = f"{tiles} on {counted(found.threads, 'thread')}"
    ways = (
        Proposal("native", the_host(), found.seconds, how),
        Proposal("torch", the_host(), found.theirs, loop),
    )
    return Verdict(the_host(), tuple(sorted(ways, key=lambda way: way.seconds or 0.0)), ())


def takes(x: Tensor, w: Tensor, offsets: Tensor) -> bool:
    """Whether torch's own product of groups takes these."""
    width = WIDTHS.get(x.dtype)
    if width is None or offsets.dtype is not torch.int32 or not offsets.shape[0]:
        return False
    ends_alone = w.dim() == 2 or offsets.shape[0] == w.shape[0]
    return ends_alone and is_aligned(x, width) and is_aligned(w, width)


def is_aligned(matrix: Tensor, width: int) -> bool:
    """Whether its rows, or its columns, are contiguous and begin at multiples of 16 bytes.

    That is `width` elements; torch's products of groups take no others.
    """
    row, column = matrix.stride()[-2:]
    if row == 1 and column >= max(1, matrix.shape[-2]):
        return bool(column % width == 0)
    return bool(column == 1 and row >= max(1, matrix.shape[-1]) and row % width == 0)


def _key(x: Tensor, w: Tensor, offsets: Tensor, bias: Tensor | None) -> Key:
    """What is the same for all that one launch multiplies."""
    sizes, others = x.shape, w.shape
    if len(others) == 3:
        lies = (sizes[1], x.stride(), others, w.stride())
    else:
        lies = (sizes[0], x.stride(), others[1], w.stride())
    return (x.dtype, len(others), lies, offsets.shape, offsets.dtype, bias is None)


def _kind(x: Tensor, w: Tensor, offsets: Tensor, bias: Any, out: Any) -> host.Kind:
    """The same as the kernels' side knows it, in bytes."""
    m, n, item, of_rows = x.shape[0], w.shape[-1], x.element_size(), w.dim() == 3
    made = (n, 1) if of_rows else (m * n, n, 1)
    c = tuple(item * one for one in made) if out is None else _bytes(out)
    return host.kind_of(
        NAMES[x.dtype],
        (offsets.shape[0], offsets.dtype is torch.int64),
        (x.shape, w.shape),
        (_bytes(x), _bytes(w), c),
        clear=of_rows and out is None,
        has_bias=bias is not None,
    )


def _bytes(value: Tensor) -> tuple[int, ...]:
    item = value.element_size()
    return tuple(item * one for one in value.stride())
