"""Products of lists of torch's tensors, looked at and multiplied in one call of machine code.

    tuple     header, length, items; a list has the items' address there
    object    header, whose last word is the type; behind it the tensor's record
    record    storage, offset, sizes, steps, dtype and device, what dispatches: at words that
              `backends/cuda/machine/addresses.py` finds and proves
    storage   word 6: how many bytes it has

    products(a, b)    torch's own products where all are plain matrices of one kind, each within its
                      storage; else None. What torch raises is raised

Python calls the function without a frame or a tuple of arguments (`builtin.py`), and it calls
Python's C interface. To look at a tensor takes 3 ns; a guard of torch's compiler takes 45, as it
writes a table of all it saw, an attribute 40. Tuples, `map` and a list in Python took 0.25 us a
call. With guards and those a list of one product took 1.2 times the 2.5 us of torch's loop.
"""

from __future__ import annotations

from functools import cache

from llvmlite import ir
from numba import cfunc, types
from numba.core import cgutils

from tilewright.backends.host.kernels.emitted import emitted
from tilewright.backends.host.kernels.helpers import helper
from tilewright.backends.host.kernels.lanes import put, scratch, whole

_HEADER = object.__basicsize__ // 8
_TYPE, _RECORD = _HEADER - 1, _HEADER
_LENGTH, _ITEMS, _OF_LIST = _HEADER, tuple.__basicsize__ // 8, _HEADER + 1
_HELD = 6
# `told`, words behind the header of an object of bytes: addresses of types, of None and of
# what multiplies two; words that dispatch as plain tensors do; places in a record; then KINDS pairs
# of a dtype and device in the host's memory and bytes of an element.
_BYTES = (bytes.__basicsize__ - 1) // 8
TENSOR, PARAMETER, LIST, TUPLE, NONE, MULTIPLY, PLAIN, INFERENCE = range(_BYTES, _BYTES + 8)
STORAGE, OFFSET, SIDES, ROWS, COLS, ROW, COL, FACTS, KEYS, FIRST = range(_BYTES + 8, _BYTES + 18)
KINDS = 6
_KIND = (1 << 40) - 1  # of the word that has dtype and device; the others are flags
_WORD = ir.IntType(64)


def _of_python(builder, name, *given):
    """What a function of Python's C interface returns, a word."""
    kind = ir.FunctionType(_WORD, [_WORD] * len(given))
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), given)


@emitted(types.intp, types.intp)
def _taken(builder, one):
    """The object, which is kept from now on."""
    kind = ir.FunctionType(ir.VoidType(), [_WORD])
    builder.call(cgutils.get_or_insert_function(builder.module, kind, "Py_IncRef"), [one])
    return one


@emitted(types.void, types.intp)
def _leave(builder, one):
    """The object is not kept any more."""
    kind = ir.FunctionType(ir.VoidType(), [_WORD])
    builder.call(cgutils.get_or_insert_function(builder.module, kind, "Py_DecRef"), [one])


@emitted(types.intp, types.intp)
def _tuple_for(builder, count):
    """A tuple for so many, which are not there yet; 0 where there is no memory."""
    return _of_python(builder, "PyTuple_New", count)


@emitted(types.intp, types.intp)
def _list_for(builder, count):
    """A list of so many, which are not there yet; 0 where there is no memory."""
    return _of_python(builder, "PyList_New", count)


@emitted(types.void, types.intp)
def _hide(builder, made):
    """Who asks for all objects does not find it, nor Python's collector."""
    kind = ir.FunctionType(ir.VoidType(), [_WORD])
    builder.call(
        cgutils.get_or_insert_function(builder.module, kind, "PyObject_GC_UnTrack"), [made]
    )


@emitted(types.void, types.intp)
def _show(builder, made):
    """It is found from now on."""
    kind = ir.FunctionType(ir.VoidType(), [_WORD])
    builder.call(cgutils.get_or_insert_function(builder.module, kind, "PyObject_GC_Track"), [made])


@emitted(types.void, types.intp, types.intp, types.intp)
def _set(builder, made, index, one):
    """An item of such a list, which then keeps it."""
    kind = ir.FunctionType(ir.IntType(32), [_WORD] * 3)
    set_ = cgutils.get_or_insert_function(builder.module, kind, "PyList_SetItem")
    builder.call(set_, [made, index, one])


@emitted(types.intp, types.intp, types.intp)
def _product(builder, multiply, pair):
    """What a function makes of the two objects at an address; 0 where it raised."""
    two, none = ir.Constant(_WORD, 2), ir.Constant(_WORD, 0)
    return _of_python(builder, "PyObject_Vectorcall", multiply, pair, two, none)


@helper
def _kind_of(one, told):
    """Dtype and device of what may be a tensor; 0 of what is none of torch's own, or more."""
    kind = whole(one, _TYPE)
    if kind != whole(told, TENSOR) and kind != whole(told, PARAMETER):
        return 0
    record = whole(one, _RECORD)
    keys = whole(record, whole(told, KEYS))
    if keys != whole(told, PLAIN) and keys != whole(told, INFERENCE):
        return 0
    return whole(record, whole(told, FACTS)) & _KIND


@helper
def _item_of(kind, told):
    """Bytes of an element of this dtype in the host's memory; 0 of what is not multiplied there."""
    for one in range(KINDS):
        if whole(told, FIRST + 2 * one) == kind:
            return whole(told, FIRST + 2 * one + 1)
    return 0


@helper
def _is_held(one, told, item):
    """Whether this tensor is a matrix all of which its storage holds."""
    record = whole(one, _RECORD)
    if whole(record, whole(told, SIDES)) != 2:
        return False
    rows, cols = whole(record, whole(told, ROWS)), whole(record, whole(told, COLS))
    row, col = whole(record, whole(told, ROW)), whole(record, whole(told, COL))
    last = whole(record, whole(told, OFFSET)) + (rows - 1) * row + (cols - 1) * col
    held = whole(whole(record, whole(told, STORAGE)), _HELD)
    return rows == 0 or cols == 0 or (last + 1) * item <= held


@helper
def _are_plain(told, items, count, kind, item):
    """Whether all of these objects are plain matrices of this kind."""
    for index in range(count):
        one = whole(items, index)
        if _kind_of(one, told) != kind or not _is_held(one, told, item):
            return False
    return True


@helper
def _multiplied(told, a, b, count):
    """A list of products of the objects at two places; None, or 0 where something was raised.

    It is hidden until all are there: a mode's function, or another thread while torch multiplies,
    may go through all lists that Python knows, which must not find one without its items.
    """
    kind = _kind_of(whole(a, 0), told)
    item = _item_of(kind, told)
    plain = item != 0 and _are_plain(told, a, count, kind, item)
    if not (plain and _are_plain(told, b, count, kind, item)):
        return _taken(whole(told, NONE))
    made, pair = _list_for(count), scratch()
    if made == 0:
        return 0
    _hide(made)
    for index in range(count):
        put(pair, 0, whole(a, index))
        put(pair, 1, whole(b, index))
        one = _product(whole(told, MULTIPLY), pair)
        if one == 0:
            _leave(made)
            return 0
        _set(made, index, one)
    _show(made)
    return made


@helper
def _is_listed(part, told):
    """Whether this is a list or a tuple, of Python's own types."""
    kind = whole(part, _TYPE)
    return kind == whole(told, LIST) or kind == whole(told, TUPLE)


@helper
def _items_of(part, told):
    """Where the items of a list or a tuple lie."""
    return whole(part, _OF_LIST) if whole(part, _TYPE) == whole(told, LIST) else part + 8 * _ITEMS


@helper
def _one_multiplied(told, x, y):
    """A list of the product of two."""
    pair = scratch()
    put(pair, 0, _taken(x))
    put(pair, 1, _taken(y))
    made = _multiplied(told, pair, pair + 8, 1)
    _leave(x)
    _leave(y)
    return made


@helper
def _held(part, told, count):
    """A tuple of its items, kept: another thread may change a list while products are made. 0 where
    there is no memory; the tuple's items are 0 where the list has no longer so many.

    To make a tuple collects garbage, whose finalisers may change a list (CPython 3.11): Python's
    PyList_AsTuple then reads items that are gone. Here the list is read once the tuple is there.
    """
    if whole(part, _TYPE) != whole(told, LIST):
        return _taken(part)
    made = _tuple_for(count)
    if made != 0 and whole(part, _LENGTH) == count:
        items = _items_of(part, told)
        for index in range(count):
            put(made, _ITEMS + index, _taken(whole(items, index)))
    return made


@helper
def _all_multiplied(told, a, b, count):
    """A list of the products of what two lists or tuples of so many hold."""
    a = _held(a, told, count)
    if a == 0:
        return 0
    b, made = _held(b, told, count), 0
    if b != 0:
        if whole(a, _ITEMS) == 0 or whole(b, _ITEMS) == 0:
            made = _taken(whole(told, NONE))
        else:
            made = _multiplied(told, a + 8 * _ITEMS, b + 8 * _ITEMS, count)
        _leave(b)
    _leave(a)
    return made


def _called(told, given, count):
    """PyObject *(PyObject *told, PyObject *const *given, Py_ssize_t count)."""
    if count != 2:
        return _taken(whole(told, NONE))
    a, b = whole(given, 0), whole(given, 1)
    if not (_is_listed(a, told) and _is_listed(b, told)):
        return _taken(whole(told, NONE))
    many = whole(a, _LENGTH)
    if many == 0 or whole(b, _LENGTH) != many:
        return _taken(whole(told, NONE))
    x, y = whole(_items_of(a, told), 0), whole(_items_of(b, told), 0)
    # Thousands of a GPU's are left to other ways without a tuple of them.
    if _item_of(_kind_of(x, told), told) == 0:
        return _taken(whole(told, NONE))
    return _one_multiplied(told, x, y) if many == 1 else _all_multiplied(told, a, b, many)


@cache
def code():
    """The function as machine code; its `address` is where."""
    return cfunc(types.intp(*[types.intp] * 3), cache=True)(_called)
