"""install(): torch's own grouped_mm multiplies here where torch has no fast kernel for the call.

torch has one for bf16 on GPUs of compute capability 9 and 10, operands at multiples of 16 bytes and
int32 offsets; below that it waits for the sizes and loops, and it raises for other strides, fp64,
int64 offsets, a bias. On a processor it loops, 6 us a group of fp32: there the host's own kernels
multiply, and torch where `backends/host/ragged.py` predicts it to be faster.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from tilewright.arrays import torch_private as private
from tilewright.errors import OperandError
from tilewright.facts.limits import MOST
from tilewright.inputs.tensors import DTYPES
from tilewright.pytorch import twins
from tilewright.pytorch.replaced import Replaced
from tilewright.torch_ops.eager import PLAIN
from tilewright.torch_ops.ragged import follow
from tilewright.torch_ops.ragged_tensors import again, is_aligned
from tilewright.wording import short

_own, _tracing = private.grouped(torch), torch.compiler.is_dynamo_compiling
_forget = private.compiler_rules(torch).clear_lru_cache
_KINDS = (*PLAIN, private.fake_tensor(torch))
_COUNTS = (torch.int32, torch.int64)
_HALF_WIDTH = 8  # elements of 16 bytes
_FAST = (9, 10)  # compute capabilities for which torch has kernels of its own


def install() -> None:
    """`torch.nn.functional.grouped_mm` and `torch._grouped_mm` multiply here from now on.

    Only where torch has no fast kernel for the call: below compute capability 9, on ROCm, for fp16,
    fp32 and fp64, strides that are no multiples of 16 bytes, int64 offsets, a bias [g, n], and on
    processors; everything else torch gets as before, and it words the errors. What is served is
    differentiable in every way, and compiles; what was compiled before is compiled anew.

    Results are torch's, to rounding on processors. Rows past the last offset, which torch leaves
    undefined, are zeros in what is multiplied here, and offsets that decrease or run past the rows
    raise ShapeError, as `ragged_matmul` says. So they do of every call on a processor that could
    be multiplied here, whoever is predicted to be sooner.
    """
    _names.install()
    _keep_rules()


def uninstall() -> None:
    """Give torch its names back. Whoever kept the function meanwhile gets torch's own by it."""
    _names.uninstall()


def _grouped_mm(
    mat_a: Tensor,
    mat_b: Tensor,
    *,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """What stands at torch.nn.functional.grouped_mm while installed."""
    if bias is None and out_dtype is None and offs is not None and not _tracing():
        if not _names.is_installed:
            return _own(mat_a, mat_b, offs=offs)
        found = again(mat_a, mat_b, offs, None, follow, _followed)  # by one look at the tensors
        if found is not None:
            return found
    if torch.compiler.is_compiling():
        return _traced(mat_a, mat_b, offs, bias, out_dtype)
    if not _names.is_installed:
        return _own(mat_a, mat_b, offs=offs, bias=bias, out_dtype=out_dtype)
    if offs is not None and not isinstance(offs, Tensor):
        raise OperandError(f"offs={short(offs)}: accepted is a tensor of int32 or int64")
    if _is_served(mat_a, mat_b, offs, bias, out_dtype):
        return _served(mat_a, mat_b, offs, bias)
    return _own(mat_a, mat_b, offs=offs, bias=bias, out_dtype=out_dtype)


def _native(
    input: Tensor,
    mat2: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """What stands at torch._grouped_mm, whose operands have other names and may follow by place."""
    return _grouped_mm(input, mat2, offs=offs, bias=bias, out_dtype=out_dtype)


def _followed(a: Tensor, b: Tensor, offs: Tensor) -> Tensor:
    """By torch's own, whose gradients cost less around them and more a group."""
    found = _own(a, b, offs=offs)
    if found.grad_fn is not None:
        found.grad_fn.register_prehook(_laid_out)
    return found


def _laid_out(grads: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
    """The gradient as torch's own formula takes it: that of a sum is one number, spread, and a
    column's rows lie apart."""
    (grad,) = grads
    if grad is None or is_aligned(grad, width := 16 // grad.element_size()):
        return grads
    n = grad.shape[-1]
    return (torch.nn.functional.pad(grad, (0, -n % width))[..., :n],)


def _traced(a: Tensor, b: Tensor, offs: Any, bias: Any, out_dtype: Any) -> Tensor:
    """The same where torch.compile looks on."""
    if _is_kept() and _is_served(a, b, offs, bias, out_dtype):
        return _served(a, b, offs, bias)
    found: Tensor = torch.ops.aten._grouped_mm.default(a, b, offs, bias, out_dtype)
    return found


@torch.compiler.assume_constant_result
def _is_kept() -> bool:
    return _names.is_installed


def _served(a: Tensor, b: Tensor, offs: Any, bias: Any) -> Tensor:
    """The product made here. torch's own is not cast by autocast, so neither is this."""
    place = "cpu" if a.device.type == "meta" else a.device.type
    if torch.is_autocast_enabled(place):
        with torch.autocast(place, enabled=False):
            return _served(a, b, offs, bias)
    found = twins.grouped_mm(a, b, offs=offs, bias=bias)
    return found.contiguous() if (a.dim(), b.dim()) == (3, 2) else found


def _is_served(a: Any, b: Any, offs: Any, bias: Any, out_dtype: Any) -> bool:
    """Whether the call is multiplied here."""
    given = [a, b, *(one for one in (offs, bias) if one is not None)]
    if not all(_is_plain(one) for one in given) or a.dtype not in DTYPES or b.dtype != a.dtype:
        return False
    place = a.device.type
    if place not in ("cpu", "cuda", "meta") or any(one.device != a.device for one in given):
        return False
    if out_dtype not in (None, a.dtype) or not _fit(a, b, offs, bias):
        return False
    if place != "cuda" or bias is not None or a.dtype != torch.bfloat16:
        return True
    aligned = is_aligned(a, _HALF_WIDTH) and is_aligned(b, _HALF_WIDTH)
    counted = offs is None or offs.dtype == torch.int32
    return not (aligned and counted and _is_fast(a.device.index or 0))


def _fit(a: Tensor, b: Tensor, offs: Any, bias: Any) -> bool:
    """Whether sizes are those of one of the four forms."""
    forms = (a.dim(), b.dim())
    if forms not in ((2, 2), (2, 3), (3, 2), (3, 3)) or a.shape[-1] != b.shape[-2]:
        return False
    if any(size > MOST for one in (a, b) for size in one.shape):
        return False
    groups = {(2, 3): b, (3, 2): a, (3, 3): a}.get(forms)
    if forms == (3, 3):
        if offs is not None or a.shape[0] != b.shape[0]:
            return False
    elif offs is None or offs.dim() != 1 or offs.dtype not in _COUNTS:
        return False
    if forms != (3, 3) and groups is not None and offs.shape[0] != groups.shape[0]:
        return False
    if bias is None:
        return True
    taken = forms in ((2, 3), (3, 3)) and bias.dtype == a.dtype and bias.dim() == 2
    return taken and bias.shape[0] == b.shape[0] and bias.shape[1] == b.shape[2]


def _is_plain(value: Any) -> bool:
    """Whether it is torch's own tensor, or a compiler's picture of one."""
    return type(value) in _KINDS and value.layout == torch.strided


@torch.compiler.assume_constant_result
@cache
def _is_fast(index: int) -> bool:
    """Whether torch has kernels of its own for this GPU."""
    if torch.version.hip is not None or not torch.cuda.is_available():
        return False
    return torch.cuda.get_device_capability(index)[0] in _FAST


def _keep_rules() -> None:
    """A compiler knows torch's own function as torch's, and ours as one to read.

    It keeps what the names of torch stand for when it first asks, or asks again.
    """
    rules = private.compiler_rules(torch).get_torch_obj_rule_map()
    rule = rules.pop(_native, None)
    if rule is not None:
        rules[_own] = rule


def _forget_rules() -> None:
    """What torch calls when processes become a group: the compiler asks again."""
    _forget()
    _keep_rules()


def _find() -> list[tuple[Any, str, Any]]:
    return [
        (torch, "_grouped_mm", _native),
        (torch.nn.functional, "grouped_mm", _grouped_mm),
        (private.compiler_rules(torch), "clear_lru_cache", _forget_rules),
    ]


_names = Replaced(_find)
