"""GroupedLoRA: low-rank adapters of unlike ranks over one linear layer, each row by its own.

    rows          sorted by rank, then by adapter: [ none | r=4: a2 a5 | r=16: a0 a1 a3 ]
    every rank    ragged products of its rows:      h = x @ a[i]       y += h @ b[i]

Two launches a rank, nothing padded and no size read back: offsets are found on the device. Few rows
on a GPU that nobody differentiates are not sorted: each reads its own adapter (few_rows.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tilewright.arrays import torch_private as private
from tilewright.backends.cuda.lora import few_rows
from tilewright.errors import ArgumentError, OperandError, ShapeError
from tilewright.inputs.watched import is_anything_watched
from tilewright.products.ragged import ragged_matmul
from tilewright.torch_ops.eager import is_eager, is_followed
from tilewright.wording import short


class GroupedLoRA(nn.Module):
    """y[t] = base(x[t]) + alpha[i] / ranks[i] · x[t] @ a[i] @ b[i], i the adapter of row t.

    (Hu et al., LoRA, ICLR 2022; many adapters in a batch: Sheng et al., S-LoRA, MLSys 2024.)

    `base` is a layer with `in_features` and `out_features`, nn.Linear say, whose parameters are
    frozen here. `ranks` has a rank an adapter, from 1 up and unlike as they come; `adapter(i)`
    gives views of a[i] [in_features, ranks[i]], drawn uniformly as nn.Linear's weights, and of b[i]
    [ranks[i], out_features], zeros at first. The parameters `a` and `b` hold those of each rank,
    ranks ascending, as [adapters, in_features, rank] and [adapters, rank, out_features]. `alpha` is
    one number, or one an adapter; by default it is the rank, which scales by 1. `dropout` leaves
    out elements of x before the adapters alone.

    A state has `adapter_ranks` too, and is refused (ArgumentError) where they are others or in
    another order: adapters of equal ranks would change places.

    Calls take x [..., in_features] and `adapter` [...], the index of every row's adapter, on x's
    device; with any index that is no adapter's (-1) a row has base alone. Rows need no order.

    Raises ArgumentError, OperandError, ShapeError.
    """

    _places: Tensor
    _by_place: Tensor
    _scale: Tensor

    def __init__(
        self,
        base: nn.Module,
        ranks: Sequence[int],
        *,
        alpha: float | Sequence[float] | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.ranks = _checked_ranks(ranks)
        self.scales = _scales(alpha, self.ranks)
        sizes = [getattr(base, name, None) for name in ("in_features", "out_features")]
        if not all(type(size) is int for size in sizes):
            raise OperandError(
                f"base={type(base).__name__}: accepted are layers with in_features and"
                " out_features, as nn.Linear has"
            )
        self.in_features, self.out_features = (int(size or 0) for size in sizes)
        self.base = base.requires_grad_(False)
        self.dropout = nn.Dropout(dropout)
        like = next(base.parameters(), torch.empty(0, device="cpu"))
        like = like if like.is_floating_point() else torch.empty(0, device=like.device)
        counts = [(rank, self.ranks.count(rank)) for rank in sorted({*self.ranks})]
        wide, out = self.in_features, self.out_features
        self.a = nn.ParameterList(like.new_empty(count, wide, rank) for rank, count in counts)
        self.b = nn.ParameterList(like.new_empty(count, rank, out) for rank, count in counts)
        # Adapters in the order of their ranks, and where each stands in it.
        order = sorted(range(len(self.ranks)), key=self.ranks.__getitem__)
        self._order, self._mean = tuple(order), sum(self.ranks) / max(len(self.ranks), 1)
        whole = torch.empty(len(order), dtype=torch.int64, device=like.device)
        self.register_buffer("_places", whole, persistent=False)
        by_place = like.new_empty(len(order) + 1)
        self.register_buffer("_by_place", by_place, persistent=False)
        self.register_buffer("_scale", like.new_empty(len(order)), persistent=False)
        self.register_buffer("adapter_ranks", torch.empty_like(whole))
        self.register_load_state_dict_pre_hook(_check_state)
        self.register_load_state_dict_post_hook(_fill_tables)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw every `a` anew and set every `b` to zero: the layer is base's again.

        After `to_empty` of a layer made on the meta device this, or a state that is loaded, writes
        the adapters' order and scales anew, too.
        """
        _fill_tables(self)
        bound = 1 / math.sqrt(max(self.in_features, 1))
        for a, b in zip(self.a, self.b, strict=True):
            nn.init.uniform_(a, -bound, bound)
            nn.init.zeros_(b)

    def adapter(self, index: int) -> tuple[Tensor, Tensor]:
        """Views of an adapter's two matrices. Raises ArgumentError for an index of none."""
        if type(index) is not int or not 0 <= index < len(self.ranks):
            raise ArgumentError(
                f"index={short(index)}: accepted are 0 to {len(self.ranks) - 1}, an adapter each"
            )
        rank = self.ranks[index]
        at, before = sorted({*self.ranks}).index(rank), self.ranks[:index].count(rank)
        return self.a[at][before], self.b[at][before]

    def forward(self, x: Tensor, adapter: Tensor) -> Tensor:
        """[..., in_features], [...] -> [..., out_features]."""
        self._check(x, adapter)
        made: Tensor = self.base(x)
        if not self.ranks:
            return made
        count = adapter.numel()
        rows = self.dropout(x).reshape(count, self.in_features)
        few = self._by_row(rows, adapter.reshape(-1), made.reshape(count, self.out_features))
        if few is not None:
            return few.reshape(made.shape)
        # Short integers have no room for the number of adapters that they are compared with.
        keys, order = self._keys(adapter.reshape(-1).long()).sort(stable=True)
        every = torch.arange(len(self.ranks) + 1, device=keys.device)
        added = self._added(rows[order], torch.searchsorted(keys, every), self._by_place[keys])
        back = torch.zeros_like(added).index_copy(0, order, added)
        return made + back.reshape(made.shape).to(made.dtype)

    def _by_row(self, rows: Tensor, adapter: Tensor, made: Tensor) -> Any:
        """The whole layer where each row by itself is the faster and nobody looks on; else None."""
        if torch.compiler.is_compiling() or not len(rows):
            return None
        if few_rows.why_not(rows, self._mean, self.out_features):
            return None
        downs, ups = (tuple(one._parameters.values()) for one in (self.a, self.b))
        every: Any = (made, *downs, *ups)
        if is_followed(rows, *every) or is_anything_watched(torch):
            return None
        if not is_eager(rows, made, adapter) or not all(map(torch.Tensor.is_contiguous, every)):
            return None
        dtype, place = rows.dtype, rows.device
        if any(one.dtype != dtype or one.device != place for one in every):
            return None
        if adapter.device != place or rows.stride(1) != 1:
            return None
        index = adapter if adapter.dtype == torch.int64 else adapter.long()
        given = (rows, index, made, downs, ups, self._order, self._scale)
        if place.index == private.current_device(torch)():
            return few_rows.added(*given)
        with torch.cuda.device(place):
            return few_rows.added(*given)

    def _check(self, x: Tensor, adapter: Tensor) -> None:
        if not isinstance(x, Tensor):
            raise OperandError(f"x={type(x).__name__}: accepted is a tensor of floats")
        if not x.dim() or x.shape[-1] != self.in_features:
            raise ShapeError(
                f"x.shape={tuple(x.shape)}: the last must be {self.in_features}, in_features"
            )
        if not isinstance(adapter, Tensor):
            raise OperandError(f"adapter={short(adapter)}: accepted is a tensor of whole numbers")
        if adapter.is_floating_point() or adapter.is_complex() or adapter.dtype == torch.bool:
            raise OperandError(f"adapter.dtype={adapter.dtype}: accepted are whole numbers")
        if adapter.shape != x.shape[:-1]:
            raise ShapeError(
                f"adapter.shape={tuple(adapter.shape)}: must be {tuple(x.shape[:-1])}, one a row"
            )

    def _keys(self, adapter: Tensor) -> Tensor:
        """Of every row the place of its adapter by rank; the last of all for rows without one."""
        count = len(self.ranks)
        known = (adapter >= 0) & (adapter < count)
        return torch.where(known, self._places[adapter.clamp(0, count - 1)], count)

    def _added(self, rows: Tensor, begins: Tensor, scale: Tensor) -> Tensor:
        """What the adapters add to rows that are sorted; `begins` is where each of them begins."""
        found: Any = None
        first = 0
        for down, up in zip(self.a, self.b, strict=True):
            last = first + down.shape[0]
            offsets = begins[first : last + 1]
            inner = ragged_matmul(rows, down, offsets)
            one = ragged_matmul(inner * scale[:, None].to(inner.dtype), up, offsets)
            found = one if found is None else found + one
            first = last
        made: Tensor = found
        return made

    def extra_repr(self) -> str:
        """What repr() shows."""
        return f"ranks={self.ranks}, scales={self.scales}"


def _check_state(module: Any, state: Any, prefix: str, *_: Any) -> None:
    """Raise where a state is of adapters that stand otherwise; called before it is loaded."""
    found = state.get(f"{prefix}adapter_ranks")
    if isinstance(found, Tensor) and not found.is_meta and found.tolist() != module.ranks:
        raise ArgumentError(
            f"state[{f'{prefix}adapter_ranks'!r}]={short(found.tolist())}: accepted are"
            f" {short(module.ranks)}, the ranks of the adapters in their order"
        )


def _fill_tables(module: Any, *_: Any) -> None:
    """Write what follows from ranks and scales, on the device that the adapters lie on now.

    `to_empty` leaves nothing in buffers, and a state that replaces meta tensors leaves them behind.
    """
    order, scales = module._order, module.scales
    tables = {
        "_places": sorted(range(len(order)), key=order.__getitem__),
        "_by_place": [*(scales[i] for i in order), 0.0],
        "_scale": scales,
        "adapter_ranks": module.ranks,
    }
    where = module.a[0].device if len(module.a) else module.adapter_ranks.device
    with torch.no_grad():
        for name, values in tables.items():
            table = getattr(module, name)
            if table.device != where:
                table = torch.empty_like(table, device=where)
                setattr(module, name, table)
            if not table.is_meta:
                table.copy_(torch.tensor(values, dtype=table.dtype, device="cpu"))


def _checked_ranks(ranks: Any) -> list[int]:
    if not isinstance(ranks, list | tuple) or not all(type(r) is int and r > 0 for r in ranks):
        raise ArgumentError(f"ranks={short(ranks)}: accepted are whole numbers from 1 up, a list")
    return list(ranks)


def _scales(alpha: Any, ranks: list[int]) -> list[float]:
    alphas: Any = ranks if alpha is None else alpha
    if isinstance(alphas, int | float):
        alphas = [alphas] * len(ranks)
    elif isinstance(alphas, str):  # whose digits are numbers
        alphas = None
    try:
        alphas = [float(one) for one in alphas]
    except (TypeError, ValueError):
        raise ArgumentError(
            f"alpha={short(alpha)}: accepted are None, a number and a list of numbers"
        ) from None
    if len(alphas) != len(ranks):
        raise ArgumentError(f"alpha: has {len(alphas)} numbers; must have {len(ranks)}")
    return [one / rank for one, rank in zip(alphas, ranks, strict=True)]
