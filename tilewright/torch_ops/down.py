"""Products of tensors that need no gradient and that nothing in torch watches: memory in and out.

    on a GPU         the launches of `calls/dense_run_gpu.py` and `calls/grouped_gpu.py`
    on a processor   NumPy's view of the same memory for `tilewright`'s own calls, or torch's BLAS

On two AVX-512 cores torch's MKL takes 0.5 to 0.9 of the time of NumPy's OpenBLAS at 128 to 512 and
gives halves a BLAS at all (1/5 of the time and less); from 1024 on both are level, and a device may
be faster than either. So small products are torch's and large ones are planned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tilewright import settings
from tilewright.arrays import storage
from tilewright.calls import dense_quick_host
from tilewright.errors import DeviceMemoryError
from tilewright.inputs.place_host import Host
from tilewright.inputs.tensors import array, dtype_of, written
from tilewright.planning.host_part import MOST_OF_TORCH


def write_product(a: Any, b: Any, out: Any, bias: Any, how: Any, **options: Any) -> Any:
    """`tilewright.matmul` of plain arrays, some of which are tensors."""
    precision, accumulate, device, kernel = how
    # In the order of `tilewright.matmul`, whose plans are found again by these values.
    options.update(device=device, kernel=kernel, precision=precision, accumulate=accumulate)
    if any(isinstance(value, Tensor) and value.is_cuda for value in (a, b, bias, out)):
        from tilewright.calls import dense_run_gpu

        return dense_run_gpu.matmul(a, b, out=out, bias=bias, **options)
    found = dense_quick_host.matmul(
        array(a, "a"),
        array(b, "b"),
        out=None if out is None else array(out, "out"),
        bias=None if bias is None else array(bias, "bias"),
        **options,
    )
    if out is not None:
        written(out)
        return out
    return torch.from_numpy(np.asarray(found)) if isinstance(a, Tensor) else found


def product(a: Tensor, b: Tensor, bias: Tensor | None, alpha: float, how: Any) -> Tensor:
    """alpha · a @ b + bias of plain tensors, of equal leading dimensions."""
    if a.device.type == "cpu" and why_torch(a, b, how) is not None:
        return _by_torch(a, b, bias, alpha)
    bias = None if bias is None else bias.contiguous()
    plain = {"beta": 0.0, "transpose_a": False, "transpose_b": False, "activation": None}
    found: Tensor = write_product(a, b, None, bias, how, alpha=alpha, **plain)
    return found


def products(
    a: Sequence[Tensor],
    b: Sequence[Tensor],
    biases: Sequence[Tensor | None],
    alphas: Sequence[float],
    how: Any,
) -> list[Tensor]:
    """alphas[i] · a[i] @ b[i] + biases[i] of plain matrices, an allocation each."""
    if not a or a[0].device.type == "cpu":
        if how[2] is not None:
            Host(a).device(how[2])  # raises where there is none
        return [_by_torch(*problem) for problem in zip(a, b, biases, alphas, strict=True)]
    made = [one.new_empty((one.shape[0], two.shape[1])) for one, two in zip(a, b, strict=True)]
    biased = any(bias is not None for bias in biases)
    bias = [one if one is None else one.contiguous() for one in biases] if biased else None
    lists_into(list(a), list(b), made, bias, how, alpha=list(alphas))
    return made


def lists_into(a: Any, b: Any, out: Any, bias: Any, how: Any, **options: Any) -> Any:
    """`tilewright.grouped_matmul` of plain matrices on a GPU."""
    from tilewright.calls import grouped_gpu

    names = ("precision", "order", "device", "kernel")
    options.update(zip(names, how, strict=True), bias=bias)
    options["order"] = options["order"] or "auto"
    return grouped_gpu.grouped_matmul(a, b, out, **options)


def is_torchs(tensors: Sequence[Tensor], how: Any) -> bool:
    """Whether only torch multiplies these on a processor: NumPy has no bfloat16."""
    return all(one.dtype == torch.bfloat16 and one.device.type == "cpu" for one in tensors) and all(
        option is None for option in how
    )


def why_torch(a: Tensor, b: Tensor, how: Any) -> str | None:
    """Why torch's BLAS multiplies these of a processor best; None where it does not."""
    if not how[1] is how[2] is how[3] is None:
        return None
    if a.dtype not in (torch.float32, torch.float64):
        if a.is_complex():
            return "torch's BLAS multiplies complex numbers, and conjugates as they lie"
        return "torch has a BLAS for halves, NumPy has none"
    if settings.device() is not None or a.numel() * b.shape[-1] > MOST_OF_TORCH:
        return None
    return "up to 768 x 768 x 768 torch's BLAS is level with the others or ahead"


def _by_torch(a: Tensor, b: Tensor, bias: Tensor | None, alpha: float) -> Tensor:
    for name, one in (("a", a), ("b", b), ("bias", bias)):
        if one is not None:
            storage.check(one, name)
    try:
        return _multiplied(a, b, bias, alpha)
    except RuntimeError as error:
        text = str(error)
        if "allocate" not in text and "overflow" not in text:
            raise
        shape = (*torch.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
        raise DeviceMemoryError(
            f"out: the host has no room for a result of shape {shape} in {dtype_of(a)}"
        ) from None


def _multiplied(a: Tensor, b: Tensor, bias: Tensor | None, alpha: float) -> Tensor:
    if alpha == 0:  # as in BLAS: a and b are not read
        sizes = (*torch.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
        nothing = a.new_zeros(sizes)
        return nothing if bias is None else nothing.add_(bias)
    if bias is not None and a.dim() == 2:
        return torch.addmm(bias, a, b, alpha=alpha)
    found = torch.matmul(a, b)
    if alpha != 1:
        found = found.mul_(alpha)
    return found if bias is None else found.add_(bias)
