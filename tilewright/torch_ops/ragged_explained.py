"""What would multiply a ragged product of tensors, or a layer of experts, in words.

on a GPU        the engines' verdict, on sizes and strides: how long groups are lies there
on a processor  the host's kernels beside torch's loop, by the offsets that are there
"""

from __future__ import annotations

import torch
from torch import Tensor

from tilewright.arrays.storage import check_memory
from tilewright.backends.cuda.ragged import engine
from tilewright.facts.arithmetic import is_alone
from tilewright.facts.dtypes import sums_of
from tilewright.facts.gates import GATES
from tilewright.inputs.devices import gpu, host
from tilewright.inputs.tensors import dtype_of
from tilewright.planning.explain import explained_elsewhere, lines_of, ragged_head
from tilewright.torch_ops import moe_on_processor, on_processor, ragged_tensors

_ALONE = "rows alone: a loop whose sums no other row decides"


def product(x: Tensor, w: Tensor, offsets: Tensor, bias: Tensor | None, how: str) -> str:
    """The report of a checked product. Raises ShapeError for offsets that can be seen wrong."""
    head, operations = _head(x, w, offsets)
    if not operations:
        return "\n".join([*head, "because    there is nothing to multiply"])
    if x.is_cuda:
        check_memory({"x": x, "w": w, "offsets": offsets, "bias": bias})
        rows, n = x.shape[0], w.shape[-1]
        out = x.new_empty((rows, n) if w.dim() == 3 else (offsets.shape[0], rows, n))
        verdict = engine.judged((x, w, offsets, bias, out, None, None), how)
        return "\n".join(head + lines_of(verdict, operations))
    on_processor.check_offsets(x, w, offsets)
    if is_alone(how) and w.dim() == 3:
        return "\n".join(head + explained_elsewhere("host", _ALONE, host(), operations))
    return "\n".join(head + lines_of(ragged_tensors.judged(x, w, offsets, bias), operations))


def layer(
    x: Tensor, w_up: Tensor, w_down: Tensor, experts: Tensor, activation: str, how: str
) -> str:
    """The report of a checked layer: that of both its products.

    Raises ArgumentError for experts that can be seen to be none.
    """
    (groups, n, d), rows = w_down.shape, experts.numel()
    check_memory({"x": x, "w_up": w_up, "w_down": w_down, "experts": experts})
    if x.is_cuda:
        offsets = torch.empty(groups, dtype=torch.int32, device=x.device)
        a = x.new_empty((rows, n))
        up = _by_index(x, w_up, offsets, a, activation, how)
    else:
        rows, (offsets, *_) = moe_on_processor.routed(experts, groups, x.dtype)
        a = x.new_empty((rows, n))
        up = product(x.new_empty((rows, d)), w_up, offsets, None, how)
    down = product(a, w_down, offsets, None, how)
    return f"rows of x by w_up, then {activation}\n{up}\nwhat that gives by w_down\n{down}"


def _by_index(x: Tensor, w: Tensor, offsets: Tensor, a: Tensor, activation: str, how: str) -> str:
    """Of rows of x that are found by index, as many as `a` has, where engines apply the gate."""
    index = torch.empty(a.shape[0], dtype=torch.int32, device=x.device)
    head, operations = _head(x, w, offsets, a.shape[0])
    verdict = engine.judged((x, w, offsets, None, a, index, None), how, GATES[activation])
    return "\n".join(head + lines_of(verdict, operations))


def _head(
    x: Tensor, w: Tensor, offsets: Tensor, rows: int | None = None
) -> tuple[list[str], float]:
    """What is multiplied, and how many operations at most; of so many rows, or those of x."""
    of_rows, n, k = w.dim() == 3, w.shape[-1], x.shape[1]
    m = x.shape[0] if rows is None else rows
    groups = w.shape[0] if of_rows else offsets.shape[0]
    device, dtype = gpu(x.get_device()) if x.is_cuda else host(), dtype_of(x)
    head = ragged_head((m, n, k), groups, (dtype, sums_of(dtype)), device, of_rows)
    return head, 2.0 * m * n * k
