"""Drop-in twins: the signatures and results of the calls that people have in their code.

torch._grouped_mm: PyTorch's `aten/src/ATen/native` documentation of `_grouped_mm`; segment_matmul
and grouped_matmul: pyg_lib.ops of PyG's pyg-lib. Where the originals demand 16-byte strides or
fp32, these take any strides and fp16, bf16, fp32, fp64.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tilewright.calls.grouped_quick_tensors import loop
from tilewright.errors import ArgumentError, ShapeError
from tilewright.inputs import tensor_lists
from tilewright.products.ragged import ragged_matmul
from tilewright.torch_ops import lists, recorded


def grouped_mm(
    mat_a: Tensor,
    mat_b: Tensor,
    *,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """What `torch._grouped_mm` gives; `offs` [g] are ends of groups, `bias` [g, n] a row a group.

    [t, k] x [g, k, n] ragged in t; [m, t] x [t, n] ragged in t, the k of each product;
    [g, m, k] x [k, t] ragged in t, the n of each; [g, m, k] x [g, k, n] without offsets.
    Raises ShapeError, ArgumentError and what `ragged_matmul` raises.
    """
    if out_dtype is not None and out_dtype != mat_a.dtype:
        raise ArgumentError(f"out_dtype={out_dtype}: accepted is mat_a's, {mat_a.dtype}")
    dims = (mat_a.dim(), mat_b.dim())
    if dims == (3, 3):
        product = torch.bmm(mat_a, mat_b)
        return product if bias is None else product + bias[:, None]
    if offs is None:
        raise ArgumentError("offs=None: needed unless both operands have three dimensions")
    if dims == (3, 2):
        if bias is not None:
            raise ArgumentError("bias: not where n is ragged; accepted is None")
        turned: Tensor = ragged_matmul(mat_b.t(), mat_a.transpose(1, 2), offs)
        return turned.t()
    if dims not in ((2, 3), (2, 2)):
        raise ShapeError(f"mat_a, mat_b: have {dims} dimensions; accepted are two or three each")
    result: Tensor = ragged_matmul(mat_a, mat_b, offs, bias=bias)
    return result


def segment_matmul(
    inputs: Tensor, ptr: Tensor, other: Tensor, bias: Tensor | None = None
) -> Tensor:
    """What `pyg_lib.ops.segment_matmul` gives: inputs[ptr[i]:ptr[i + 1]] @ other[i] + bias[i].

    `inputs` [t, k], `ptr` [g + 1], `other` [g, k, n], `bias` [g, n]; float16, bfloat16, float32 or
    float64. Returns [t, n], differentiable. Raises ShapeError and what `ragged_matmul` raises.
    """
    if other.dim() != 3:
        raise ShapeError(f"other.shape={tuple(other.shape)}: must have three dimensions")
    if ptr.dim() == 1 and ptr.shape[0] != other.shape[0] + 1:
        raise ShapeError(f"ptr.shape={tuple(ptr.shape)}: must be ({other.shape[0] + 1},)")
    pointers = ptr.to(inputs.device)
    result: Tensor = ragged_matmul(inputs, other, pointers, bias=bias)
    return result


def grouped_matmul(
    inputs: Sequence[Tensor], others: Sequence[Tensor], biases: Sequence[Tensor] | None = None
) -> list[Tensor]:
    """What `pyg_lib.ops.grouped_matmul` gives: [inputs[i] @ others[i] + biases[i]], differentiable.

    Matrices [m_i, k_i] and [k_i, n_i] of one dtype and one device, vectors [n_i]. Raises ShapeError
    and what `tilewright.grouped_matmul` raises.
    """
    found = loop(inputs, others, biases)
    if found is None:
        how = lists.PLAIN
        found = recorded.products(inputs, others, biases, (False, False), 1.0, how, lists.products)
    if found is not None:
        return found
    count = len(inputs)
    if len(others) != count or (biases is not None and len(biases) != count):
        have = "" if biases is None else f", {len(biases)} biases"
        raise ShapeError(
            f"others: {len(others)} matrices{have}; must be {count}, as many as inputs"
        )
    left, right = tensor_lists.matrices(inputs, "inputs"), tensor_lists.matrices(others, "others")
    if not count:
        return []
    left, right, given = lists.cast_lists(left, right, biases or ())
    names = ("inputs", "others", "biases")
    left, right = tensor_lists.fitting(left, right, given, (False, False), None, names)
    return lists.products(left, right, given or None)
