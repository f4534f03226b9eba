"""GroupedLinear: a linear layer for each group of rows, all applied in one launch."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from tilewright.products.ragged import ragged_matmul
from tilewright.pytorch.sizes import check_weights_dtype, checked_sizes


class GroupedLinear(nn.Module):
    """y[i] = x[i] @ weight[group of i] + bias[group of i].

    `weight` is [groups, in_features, out_features], `bias` [groups, out_features] or None; both
    begin as nn.Linear's do (uniform within 1 / sqrt(in_features); He et al., ICCV 2015).

    Calls take x [t, in_features], sorted by group, and `offsets` [groups] with the row at which
    each group ends (or [groups + 1], beginning with 0), on the same device; sizes are never read
    back. `precision`, "tf32" or "fp32x", is that of `tilewright.ragged_matmul`, forward and of both
    gradients, where the layer computes in float32.

    Raises ArgumentError, DtypeError, and at calls what `tilewright.ragged_matmul` raises.
    """

    def __init__(
        self,
        groups: int,
        in_features: int,
        out_features: int,
        *,
        bias: bool = True,
        precision: str | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        groups, in_features, out_features = checked_sizes(
            groups=groups, in_features=in_features, out_features=out_features
        )
        check_weights_dtype(dtype)
        self.groups, self.in_features, self.out_features = groups, in_features, out_features
        self.precision = precision
        where = {"device": device, "dtype": dtype}
        self.weight = nn.Parameter(torch.empty((groups, in_features, out_features), **where))
        self.bias = nn.Parameter(torch.empty((groups, out_features), **where)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weights and biases anew."""
        bound = 1 / math.sqrt(max(self.in_features, 1))
        nn.init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, x: Tensor, offsets: Tensor) -> Tensor:
        """[t, in_features] -> [t, out_features]; rows past the last offset give zeros."""
        # A precision is float32's: the layer may have been cast, by .bfloat16() or by FSDP.
        precision = self.precision if x.dtype == torch.float32 else None
        result: Tensor = ragged_matmul(x, self.weight, offsets, bias=self.bias, precision=precision)
        return result

    def extra_repr(self) -> str:
        """What repr() shows."""
        return (
            f"groups={self.groups}, in_features={self.in_features},"
            f" out_features={self.out_features}, bias={self.bias is not None}"
        )
