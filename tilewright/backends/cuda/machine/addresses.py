"""Reads addresses, sizes and steps of thousands of torch tensors as columns, in a few operations.

Asking each of 2,000 tensors takes 1 ms of an H200's host, longer than their products do. What the
methods would say is read from memory instead. In words of 8 bytes, with D = 8 in torch 2.11 and 7
in torch 2.13:

    tuple           3 (4 from CPython 3.14 on) its objects, one after another
    Python object   1 its type  2 the tensor's record
    record          2 its storage  3 what autograd knows of it, 0 for most
                    D dimensions  D+1, 2 sizes  D+6, 7 steps  D+11 offset
                    D+13 dtype and device, in 5 bytes
                    D+14 what dispatches: layout, negative bit, modes
    storage         2 address  6 its bytes

The layout is proven on sample tensors before it is trusted, and a tensor that dispatches otherwise
than a plain one is not looked into: then every tensor is asked.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import chain
from operator import attrgetter
from typing import Any

import numpy as np

from tilewright.arrays import torch_private as private
from tilewright.arrays.storage import is_short
from tilewright.backends.cuda.work import Ints

_WORD = 8
_TYPE, _RECORD = 1, 2
_STORAGE, _AUTOGRAD, _AT, _HELD = 2, 3, 2, 6
_BEGINS = (8, 7)  # D
_FACTS, _KEYS = 13, 14  # from there on
_FIELDS = (11, 0, 1, 2, 6, 7, _FACTS, _KEYS)  # offset, dimensions, sizes, steps, and those
_OBJECTS = tuple.__basicsize__  # bytes before the objects of a tuple
_HOLDING = np.array([0, *range(2, 10)])  # of a layout's places: all but autograd's
_KIND = (1 << 40) - 1  # dtype, device type and number
_OBJECT: Ints = np.array([[_TYPE], [_RECORD]])
_PLACE_AND_SIZE: Ints = np.array([[_AT], [_HELD]])
_NOWHERE = -(1 << 56)  # how far a matrix without elements reaches: into any storage


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where a record has what is asked of it, and how plain tensors dispatch: the words `keys`.

    `places` are those of storage, autograd's word, and of `_FIELDS`. `autograd` says whether that
    word was seen to be 0 where autograd knows nothing of a tensor, and only there.
    """

    keys: tuple[int, ...]
    places: Ints
    autograd: bool


class _Words:
    """All memory but its first word, as words: nothing of it is touched until it is asked for."""

    __array_interface__ = {  # noqa: RUF012
        "data": (_WORD, True),
        "shape": (1 << 57,),
        "typestr": "<i8",
        "version": 3,
    }


_memory: Ints = np.asarray(_Words())


@dataclass(frozen=True, slots=True)
class Lies:
    """How tensors of torch's own type lie that are no more than memory, as their records say.

    `storage` are addresses in bytes, of `held` bytes each, and `offset` elements from there.
    `words` has a row of words for each of dimensions, two sizes, two steps, dtype and device, and
    dispatch: tensors with the same words differ in where they lie, and in what autograd knows.
    """

    storage: Ints
    held: Ints
    offset: Ints
    autograd: Ints
    words: Ints

    @property
    def sizes(self) -> Ints:
        """Rows and columns of matrices, a row each."""
        return self.words[1:3]

    @property
    def steps(self) -> Ints:
        """From a row to the next, and from a column to the next."""
        return self.words[3:5]

    @property
    def reach(self) -> Ints:
        """Elements from the first of each matrix to past its last."""
        return _reach(self.sizes, self.steps)

    @property
    def are_alike(self) -> bool:
        """Whether all are matrices of one dtype and device."""
        kind = self.words[5]
        return bool((self.words[0] == 2).all() and (kind == kind[0]).all())


def lies(values: tuple[Any, ...]) -> Lies | None:
    """How these lie, in the fewest operations, or None: where they are not of torch's own type, lie
    on another kind of device than the first, are more than memory, or the layout is not known."""
    import torch

    layout = _layout(values[0].device.type) if type(values[0]) is torch.Tensor else None
    if layout is None or not layout.autograd:
        return None
    kinds, records = words_at(objects_of(values), _OBJECT)
    if (kinds != id(torch.Tensor)).any():
        return None
    storage, autograd, offset, *_, dispatch = found = words_at(records, layout.places)
    if not _are_plain(dispatch, layout):
        return None
    found[-2] &= _KIND  # the other bytes are flags, and bits that nobody ever set
    place, held = words_at(storage, _PLACE_AND_SIZE)
    return Lies(place, held, offset, autograd, found[3:])


def read(values: Sequence[Any]) -> tuple[Ints, Ints, Ints] | None:
    """Addresses in bytes, sizes [count, 2] and steps [count, 2] of plain matrices that are alike.

    None where they are not all of one dtype and device, or are of subclasses, of other dimensions,
    or more than memory: lazily negated, traced, batched by a transform; or have less, as their
    storage has shrunk.
    """
    import torch

    if not set(map(type, values)) <= {torch.Tensor, torch.nn.Parameter}:
        return None
    layout = _layout(values[0].device.type)
    return _asked(values) if layout is None else _read(values, layout)


def are_alike(values: Sequence[Any]) -> bool:
    """Whether these are certainly plain tensors of one dtype and device. The first is a tensor."""
    layout = _layout(values[0].device.type)
    if layout is None:
        return False
    kinds, records = words_at(objects_of(values), _OBJECT)
    facts, dispatch = words_at(records, layout.places[-2:])
    return _are_torchs(kinds) and _are_of_a_kind(facts, dispatch, layout)


def are_held(values: Sequence[Any]) -> bool | None:
    """Whether the storages of these vectors and matrices hold all their elements; None where they
    are not certainly plain tensors of one dtype and device. The first is a tensor."""
    layout = _layout(values[0].device.type)
    if layout is None:
        return None
    kinds, records = words_at(objects_of(values), _OBJECT)
    if not _are_torchs(kinds):
        return None
    storage, last, dims, rows, cols, *words = words_at(records, layout.places[_HOLDING])
    row, col, facts, dispatch = words
    if not _are_of_a_kind(facts, dispatch, layout):
        return None
    if (dims != 2).any():
        cols[dims == 1] = 1
    last += (rows - 1) * row + (cols - 1) * col
    short = (last + 1) * values[0].element_size() > words_at(storage, _HELD)
    return not (short.any() and (short & (rows > 0) & (cols > 0)).any())


def begins(where: str) -> int | None:
    """D, as drawn above, of tensors on such a device; None where the layout is not known."""
    layout = _layout(where)
    return None if layout is None else int(layout.places[2, 0]) - _FIELDS[0]


def words_of_matrices(where: str, dtypes: Iterable[Any]) -> list[int] | None:
    """What machine code needs to know matrices on such a device by their records; None where the
    layout is not known.

    How plain tensors dispatch, and such as were made in inference mode; where a record has what
    `_HOLDING` names; the word of each dtype on that device and its bytes.
    """
    import torch

    layout = _layout(where)
    if layout is None:
        return None
    with _undisturbed(torch):
        samples = [torch.empty(1, 1, dtype=dtype, device=where) for dtype in dtypes]
    facts = words_at(words_at(objects_of(samples), _RECORD), layout.places[-2]) & _KIND
    pairs = zip(facts.tolist(), samples, strict=True)
    kinds = [word for fact, sample in pairs for word in (fact, sample.element_size())]
    places: list[int] = layout.places[_HOLDING, 0].tolist()
    return [*layout.keys, *places, *kinds]


def _read(values: Sequence[Any], layout: _Layout) -> tuple[Ints, Ints, Ints] | None:
    records = words_at(objects_of(values), _RECORD)
    storage, _, offset, dims, *rest, facts, dispatch = words_at(records, layout.places)
    facts &= _KIND
    if not _are_plain(dispatch, layout) or (facts != facts[0]).any() or (dims != 2).any():
        return None
    (address, held), item = words_at(storage, _PLACE_AND_SIZE), values[0].element_size()
    sizes, steps = np.stack(rest[:2]), np.stack(rest[2:])
    if ((offset + _reach(sizes, steps)) * item > held).any():
        return None
    address += offset * item
    return address, sizes.T, steps.T


def _reach(sizes: Ints, steps: Ints) -> Ints:
    """Elements from the first to past the last of matrices, a row each of rows and columns."""
    found: Ints = ((sizes - 1) * steps).sum(axis=0) + 1
    found[(sizes == 0).any(axis=0)] = _NOWHERE
    return found


def _are_torchs(kinds: Ints) -> bool:
    """Whether all are of torch's own types, by the addresses of theirs."""
    import torch

    return bool(((kinds == id(torch.Tensor)) | (kinds == id(torch.nn.Parameter))).all())


def _are_of_a_kind(facts: Ints, dispatch: Ints, layout: _Layout) -> bool:
    """Whether tensors whose records have these words are plain, of one dtype and device."""
    facts &= _KIND
    return bool((facts == facts[0]).all() and _are_plain(dispatch, layout))


def _are_plain(dispatch: Ints, layout: _Layout) -> bool:
    plain = dispatch == layout.keys[0]
    if not plain.all():
        for other in layout.keys[1:]:
            plain |= dispatch == other
    return bool(plain.all())


def objects_of(values: Sequence[Any]) -> Ints:
    """The address of each object of a tuple."""
    held = tuple(values)
    first = (id(held) + _OBJECTS) // _WORD - 1
    found: Ints = _memory[first : first + len(held)].copy()
    return found


def words_at(addresses: Ints, place: Any) -> Ints:
    """The word, or words, at each address."""
    found: Ints = _memory.take((addresses >> 3) + (place - 1))
    return found


def _asked(values: Sequence[Any]) -> tuple[Ints, Ints, Ints] | None:
    """By the tensors' own methods."""
    import torch

    facts = (attrgetter("dtype"), attrgetter("device"), attrgetter("layout"), torch.Tensor.dim)
    for fact in facts:
        if [*map(fact, values)].count(fact(values[0])) != len(values):
            return None
    odd = (torch.Tensor.is_neg, torch.Tensor.is_conj)
    if values[0].dim() != 2 or any(any(map(is_odd, values)) for is_odd in odd):
        return None
    count = len(values)
    if any(map(is_short, values)):
        return None
    try:
        address = np.fromiter(map(torch.Tensor.data_ptr, values), np.int64, count)
    except RuntimeError:  # without memory
        return None
    every = chain.from_iterable
    sizes = np.fromiter(every(map(attrgetter("shape"), values)), np.int64, 2 * count)
    steps = np.fromiter(every(map(torch.Tensor.stride, values)), np.int64, 2 * count)
    return address, sizes.reshape(-1, 2), steps.reshape(-1, 2)


@cache
def _layout(where: str) -> _Layout | None:
    """The layout that reads right on samples of such a device; None where none does."""
    import torch

    with _undisturbed(torch):
        return _layout_of_samples(torch, where)


@contextmanager
def _undisturbed(torch: Any) -> Iterator[None]:
    """Samples made meanwhile are plain ones: a mode of the caller's may make them without memory,
    or something that is no tensor, and a transform of torch.func puts each into another."""
    with ExitStack() as without:
        without.enter_context(private.without_modes(torch)())
        without.enter_context(private.without_function_modes(torch)())
        if private.transform(torch)() is not None:
            without.enter_context(private.without_transforms(torch)())
        yield


def _layout_of_samples(torch: Any, where: str) -> _Layout | None:
    if sys.implementation.name != "cpython" or sys.byteorder != "little":
        return None
    float32 = torch.float32  # the default may be that of the one below that is unlike the others
    with torch.inference_mode():
        inference = torch.empty(11, 7, dtype=float32, device=where)
    with torch.inference_mode(mode=False):
        base = torch.empty(400, dtype=float32, device=where)
        samples = [base.as_strided((11, 7), (9, 1), 5), base.as_strided((3, 5), (1, 13), 17)]
        samples += [torch.nn.Parameter(torch.empty(6, 4, dtype=float32, device=where)), inference]
        odd = [base, torch.empty(3, 5, dtype=torch.complex64, device=where).conj().imag]
    objects = np.array([*map(id, (*samples, *odd))], np.int64)
    if not np.array_equal(objects_of((*samples, *odd)), objects):
        return None
    if words_at(objects, _RECORD).tolist() != [one._cdata for one in (*samples, *odd)]:
        return None
    kinds = words_at(objects, _TYPE).tolist()
    if kinds != [id(type(one)) for one in (*samples, *odd)]:
        return None
    records = words_at(objects, _RECORD)
    known = (words_at(records, _AUTOGRAD) != 0).tolist()
    autograd = known[2] and not known[len(samples)]  # of the parameter, of `base`
    for begins in _BEGINS:
        keys = words_at(records, begins + _KEYS).tolist()
        fields = (begins + field for field in _FIELDS)
        places = np.array([_STORAGE, _AUTOGRAD, *fields])[:, np.newaxis]
        layout = _Layout(tuple(dict.fromkeys(keys[: len(samples)])), places, autograd)
        if len(layout.keys) == 2 and keys[-1] not in layout.keys and _holds(layout, samples, base):
            return layout
    return None


def _holds(layout: _Layout, samples: list[Any], vector: Any) -> bool:
    """Whether it reads what the samples themselves say, and knows what is unlike them."""
    found, asked = _read(samples, layout), _asked(samples)
    if found is None or asked is None:
        return False
    records = words_at(objects_of(samples), _RECORD)
    held = words_at(words_at(records, _STORAGE), _HELD).tolist()
    if held != [one.untyped_storage().nbytes() for one in samples]:
        return False
    if not all(np.array_equal(x, y) for x, y in zip(found, asked, strict=True)):
        return False
    unlike = ([vector], [*samples, samples[0].detach().half()])
    return all(_read(values, layout) is None for values in unlike)
