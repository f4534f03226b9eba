"""PyTorch Geometric: its typed layers multiply here, whether pyg-lib is installed or not.

    HeteroLinear       rows by the matrix of their type        segment_matmul
    RGCNConv           messages by the matrix of their edge    segment_matmul, for sums
    HeteroDictLinear   ten types and more                      grouped_matmul

HGTConv is made of HeteroLinear and HeteroDictLinear. PyG takes pyg-lib's functions of these names
only where no compiler looks on; ours compile, so they are taken there too. Of RGCNConv's means and
maxima pyg-lib's way has others than the loop (its mean is over the edges of all types), so those
keep the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType, SimpleNamespace
from typing import Any

import torch
import torch_geometric
from torch import Tensor
from torch_geometric.nn.conv import rgcn_conv
from torch_geometric.nn.dense import linear
from torch_geometric.utils import index_sort
from torch_geometric.utils.sparse import index2ptr

from tilewright.inputs.tensors import DTYPES
from tilewright.pytorch import twins
from tilewright.pytorch.replaced import Replaced

_FROM = 10  # types from which PyG multiplies dictionaries as one list

__all__ = ["install", "segment_matmul", "uninstall"]


def install() -> None:
    """HeteroLinear, HeteroDictLinear, RGCNConv and what is made of them multiply here from now on.

    `torch_geometric.backend.use_segment_matmul` holds as PyG describes it: False keeps its loops,
    None (its default) leaves RGCNConv to PyG's own estimate and dictionaries of less than ten types
    to theirs. HeteroLinear is not timed first. Results are those of PyG's loops.
    """
    _names.install()


def uninstall() -> None:
    """Give PyG back what it had."""
    _names.uninstall()


def segment_matmul(inputs: Tensor, ptr: Tensor, other: Tensor) -> Tensor:
    """inputs[ptr[i]:ptr[i + 1]] @ other[i], of inputs' dtype under autocast too, as PyG's loop."""
    return twins.segment_matmul(inputs, ptr, other).to(inputs.dtype)


def _messages(inputs: Tensor, ptr: Tensor, other: Tensor) -> Tensor:
    """The same for RGCNConv, whose loop adds what is halved in width into torch's default dtype."""
    wide = torch.promote_types(inputs.dtype, torch.get_default_dtype())
    return twins.segment_matmul(inputs, ptr, other).to(wide)


def _rgcn(own: Any) -> Callable[..., Any]:
    """RGCNConv.forward for sums; for others the same with its loop, as where PyG compiles."""
    loop = FunctionType(own.__code__, {**own.__globals__, "is_compiling": lambda: True}, "forward")
    loop.__defaults__, loop.__kwdefaults__ = own.__defaults__, own.__kwdefaults__

    def forward(self: Any, *given: Any, **named: Any) -> Any:
        return (own if self.aggr in ("add", "sum") else loop)(self, *given, **named)

    return forward


def _hetero_linear(self: Any, x: Tensor, type_vec: Tensor) -> Tensor:
    """HeteroLinear.forward: as PyG's, but that a compiler sees no question about the types."""
    order = None
    if not self.is_sorted and (
        torch.compiler.is_compiling() or bool((type_vec[1:] < type_vec[:-1]).any())
    ):
        type_vec, order = index_sort(type_vec, self.num_types)
        x = x[order]
    ends = index2ptr(type_vec, self.num_types)
    served = torch_geometric.backend.use_segment_matmul is not False and x.dim() == 2
    if served and x.dtype in DTYPES:
        out = segment_matmul(x, ends, self.weight)
    else:
        out = self.forward_naive(x, ends)
    if self.bias is not None:
        out = out + self.bias[type_vec].to(out.dtype)
    if order is None:
        return out
    return torch.empty_like(out).index_copy(0, order, out)


def _hetero_dict_linear(self: Any, x_dict: dict[Any, Tensor]) -> dict[Any, Tensor]:
    """HeteroDictLinear.forward: each result under the key of its rows, in any order."""
    keys = [key for key in self.lins if key in x_dict]
    inputs = [x_dict[key] for key in keys]
    asked = torch_geometric.backend.use_segment_matmul
    many = len(x_dict) >= _FROM if asked is None else asked
    if not many or any(x.dim() != 2 or x.dtype not in DTYPES for x in inputs):
        return {key: self.lins[key](x) for key, x in zip(keys, inputs, strict=True)}
    layers = [self.lins[key] for key in keys]
    biases = [one.bias for one in layers]
    weights = [one.weight.t() for one in layers]
    found = twins.grouped_matmul(inputs, weights, None if None in biases else biases)
    return dict(zip(keys, found, strict=True))


class _WithOurs:
    """pyg-lib with `ops.segment_matmul` and `ops.grouped_matmul` of ours; all else is its own."""

    def __init__(self, own: Any) -> None:
        self._own = own
        self.ops = SimpleNamespace(**vars(getattr(own, "ops", SimpleNamespace())))
        self.ops.segment_matmul = _messages
        self.ops.grouped_matmul = twins.grouped_matmul

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)


def _never() -> bool:
    """PyG's question whether something compiles; ours compile."""
    return False


def _find() -> list[tuple[Any, str, Any]]:
    typing = torch_geometric.typing
    return [
        (linear.HeteroLinear, "forward", _hetero_linear),
        (linear.HeteroDictLinear, "forward", _hetero_dict_linear),
        (rgcn_conv.RGCNConv, "forward", _rgcn(rgcn_conv.RGCNConv.forward)),
        (rgcn_conv, "pyg_lib", _WithOurs(rgcn_conv.pyg_lib)),
        (rgcn_conv, "is_compiling", _never),
        (typing, "WITH_SEGMM", True),
        (typing, "WITH_GMM", True),
    ]


_names = Replaced(_find)
