"""ExpertParallel: a layer of experts spread over the processes of a group, a few on each."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from tilewright.distributed.exchange import Parcel, dispatched, failed, returned
from tilewright.distributed.owners import owners_of
from tilewright.errors import ArgumentError, DeviceError, DtypeError, OperandError, ShapeError
from tilewright.inputs.tensors import check_tensor, needs_gradient
from tilewright.products.moe import moe
from tilewright.products.ragged import ragged_matmul
from tilewright.pytorch.modules import GroupedLinear
from tilewright.pytorch.moe import MoE
from tilewright.torch_ops import autocast
from tilewright.wording import short

# Parameters that have an entry an expert.
_SPREAD = {MoE: ("w_up", "w_down"), GroupedLinear: ("weight", "bias")}
_WHY = "tilewright.distributed reads how many rows come before it makes room for them"


class ExpertParallel(nn.Module):
    """A `MoE` or `GroupedLinear` of which each process of `group` keeps only its own experts.

    Every process makes the same layer, wraps it, and calls it with tokens of its own, any number,
    none too: results are the layer's for these tokens. Tokens travel to the ranks that have their
    experts by `all_to_all_single`, once a rank, and one sum a rank comes back; gradients go the
    other way.

    Args:
        layer: `MoE` or `GroupedLinear`, with all experts; it is not changed.
        group: a ProcessGroup of torch.distributed, a DeviceMesh of one dimension, or None for all
            processes. Gloo for processors' tensors, NCCL for GPUs'.
        placement: None for runs of experts, as many on each rank as on the others, or one more;
            the rank of every expert; or what `tilewright.split` gave, where it cuts no expert. A
            rank may have none.

    Calls take what the layer's take, and all processes make as many calls, and backward passes, in
    the same order. `owned` are this rank's experts. Gradients of experts are sums over the tokens
    of all ranks; what every rank has, a router say, gets those of its own tokens, and whoever
    trains it adds them up (`all_reduce`) as for any copied parameter.

    `state_dict()` has this rank's experts and, as `owned`, which they are; loading those of others
    raises ArgumentError. `whole_state_dict` and `load_whole` speak of all experts, so that a file
    does not depend on how many ranks there were.

    One host wait a call, for the numbers of rows. What a rank's own arguments are refused for ends
    the call on all ranks: DeviceError there names it. A process that dies or fails otherwise is
    noticed by the group: gloo's connections break at once, NCCL's calls end after the `timeout`
    that `init_process_group` was given (10 minutes), gloo's that wait for a process that lives
    after theirs (30 minutes).

    torch.compile leaves calls out of its graph; `fullgraph=True` raises with the reason. Gradients
    of gradients and torch.func raise.

    Raises: OperandError, ArgumentError, DeviceError where there is no process group.
    """

    def __init__(self, layer: nn.Module, group: Any = None, *, placement: Any = None) -> None:
        super().__init__()
        names = next((known for kind, known in _SPREAD.items() if isinstance(layer, kind)), None)
        if names is None:
            raise OperandError(
                f"layer={type(layer).__name__}: accepted are tilewright.pytorch.MoE and"
                " GroupedLinear"
            )
        self._among = _Group(_checked(group))
        self.experts = getattr(layer, names[0]).shape[0]
        rank, count = dist.get_rank(self.group), dist.get_world_size(self.group)
        self._owners = owners_of(placement, self.experts, count)
        self._names = tuple(name for name in names if getattr(layer, name) is not None)
        own = torch.tensor(self._owners.of(rank), dtype=torch.int64, device="cpu")
        self.layer = _cut(layer, self._names, own)
        device = getattr(layer, names[0]).device
        self.register_buffer("owned", own.to(device))
        for name, column in (("_ranks", self._owners.ranks), ("_numbers", self._owners.places)):
            table = torch.tensor(column or (0,), dtype=torch.int64, device=device)
            self.register_buffer(name, table, persistent=False)
        self.register_load_state_dict_pre_hook(_check_owned)

    @property
    def group(self) -> Any:
        """The process group."""
        return self._among.group

    @torch.compiler.disable(reason=_WHY)
    def forward(self, x: Tensor, *given: Any, **named: Any) -> Tensor:
        """As the layer's: `x, experts=None, weights=None` of MoE, `x, offsets` of GroupedLinear."""
        linear = isinstance(self.layer, GroupedLinear)
        try:
            parcel = (self._rows if linear else self._tokens)(x, *given, **named)
        except Exception:
            with suppress(RuntimeError):  # of a group that is lost
                failed(self._ranks.device, self.group)
            raise
        owners = (self._ranks, self._numbers)
        rows, experts, weights, route = dispatched(parcel, owners, self.group)
        made = self._multiplied(rows, experts) if linear else self._mixed(rows, experts, weights)
        out = returned(made, route)
        return out.reshape(*x.shape[:-1], out.shape[1])

    def _tokens(self, x: Any, experts: Any = None, weights: Any = None) -> Parcel:
        """What MoE.forward gives its experts, checked."""
        layer: Any = self.layer
        if (experts is None) != (weights is None):
            raise ArgumentError("experts, weights: accepted are both, or neither")
        self._check_x(x, layer.features)
        rows = x.reshape(-1, layer.features)
        if experts is None:
            experts, weights = layer.route(rows)
        else:
            experts, weights = self._routed(rows, experts, weights)
        (rows,) = autocast.cast(rows)
        wrong = (experts < -1) | (experts >= self.experts)
        follows = needs_gradient(rows, weights), needs_gradient(*self._spread())

        def error() -> Exception:
            first = int(experts[wrong][0])
            return ArgumentError(
                f"experts: has {first}; accepted are experts from 0 to {self.experts - 1}, and -1"
                " for nobody"
            )

        return Parcel(
            rows, experts.long(), weights, wrong.any(), error, follows, self._owners.check
        )

    def _routed(self, rows: Tensor, experts: Any, weights: Any) -> tuple[Tensor, Tensor]:
        """Experts and weights [T, K] that the caller gave."""
        for name, value in (("experts", experts), ("weights", weights)):
            if not isinstance(value, Tensor) or value.device != rows.device:
                shown = value.device if isinstance(value, Tensor) else type(value).__name__
                raise OperandError(f"{name}={shown}: accepted are tensors on {rows.device}, as x")
        if experts.dtype not in (torch.int32, torch.int64):
            raise DtypeError(f"experts.dtype={experts.dtype}: accepted are int32 and int64")
        if weights.dtype not in (rows.dtype, torch.float32):
            raise DtypeError(f"weights.dtype={weights.dtype}: accepted are float32 and x's dtype")
        shape = experts.shape
        if weights.shape != shape or not shape or shape[:-1].numel() != len(rows):
            raise ShapeError(
                f"experts.shape={tuple(experts.shape)}, weights.shape={tuple(weights.shape)}:"
                f" accepted are two of [{len(rows)}, experts a token], a row a token"
            )
        top = experts.shape[-1]
        return experts.reshape(len(rows), top), weights.reshape(len(rows), top)

    def _rows(self, x: Any, offsets: Any) -> Parcel:
        """What GroupedLinear.forward multiplies, checked: a row has one expert, its group."""
        layer: Any = self.layer
        self._check_x(x, layer.in_features)
        if x.dim() != 2:
            raise ShapeError(f"x.shape={tuple(x.shape)}: must have 2 dimensions")
        whole = isinstance(offsets, Tensor) and offsets.dtype in (torch.int32, torch.int64)
        if not whole or offsets.device != x.device:
            raise OperandError(
                f"offsets={short(offsets)}: accepted is an int32 or int64 tensor on {x.device}"
            )
        if offsets.dim() != 1 or len(offsets) - self.experts not in (0, 1):
            raise ShapeError(
                f"offsets.shape={tuple(offsets.shape)}: accepted are [{self.experts}], where each"
                f" group ends, and [{self.experts + 1}], beginning with 0"
            )
        bounds = offsets if len(offsets) > self.experts else nn.functional.pad(offsets, (1, 0))
        place = torch.arange(len(x), device=x.device)
        group = torch.searchsorted(bounds[1:].long(), place, right=True)
        group = group.masked_fill((group == self.experts) | (place < bounds[0]), -1)
        wrong = (bounds.diff() < 0).any() | (bounds[0] < 0) | (bounds[-1] > len(x))
        (rows,) = autocast.cast(x)
        follows = needs_gradient(rows), needs_gradient(*self._spread())

        def error() -> Exception:
            return ShapeError(
                f"offsets={short(offsets.tolist())}: must not decrease, begin below 0 or run past"
                f" the {len(x)} rows"
            )

        return Parcel(rows, group[:, None], None, wrong, error, follows, self._owners.check)

    def _check_x(self, x: Any, columns: int) -> None:
        check_tensor(x, "x")
        weight = getattr(self.layer, self._names[0])
        if x.device != weight.device:
            raise OperandError(f"x.device={str(x.device)!r}: the experts lie on {weight.device}")
        if not x.dim() or x.shape[-1] != columns:
            raise ShapeError(f"x.shape={tuple(x.shape)}: must end with {columns} columns")
        if x.dtype != weight.dtype and not torch.is_autocast_enabled(x.device.type):
            raise DtypeError(f"x.dtype={x.dtype}: the experts have {weight.dtype}")

    @property
    def own_names(self) -> list[str]:
        """Names of parameters and buffers that each rank has others of."""
        return [*(f"layer.{name}" for name in self._names), "owned"]

    def _spread(self) -> list[Tensor]:
        """This rank's parameters of experts."""
        return [getattr(self.layer, name) for name in self._names]

    def _mixed(self, rows: Tensor, experts: Tensor, weights: Any) -> Tensor:
        """Of each row the weighted sum of its experts that are here."""
        layer: Any = self.layer
        precision = layer.precision if rows.dtype == torch.float32 else None
        operands = (rows, layer.w_up, layer.w_down, experts, weights)
        options = {"precision": precision, "batch_invariant": layer.batch_invariant}
        made: Tensor = moe(*operands, activation=layer.activation, **options)
        return made

    def _multiplied(self, rows: Tensor, experts: Tensor) -> Tensor:
        """Each row by the matrix of its group, in the order in which rows came."""
        layer: Any = self.layer
        group = experts[:, 0].long()
        order = torch.argsort(group, stable=True)
        counts = torch.zeros(len(self.owned), dtype=torch.int64, device=group.device)
        ends = counts.scatter_add_(0, group, torch.ones_like(group)).cumsum(0)
        precision = layer.precision if rows.dtype == torch.float32 else None
        options = {"bias": layer.bias, "precision": precision}
        made = ragged_matmul(rows.index_select(0, order), layer.weight, ends, **options)
        found: Tensor = made.index_select(0, torch.argsort(order))
        return found

    def whole_state_dict(self) -> dict[str, Tensor]:
        """What `layer.state_dict()` of the layer with all experts would be; every rank calls it."""
        rank, state = dist.get_rank(self.group), dict(self.layer.state_dict())
        for name in self._names:
            own = state[name].contiguous()
            whole = own.new_empty((self.experts, *own.shape[1:]))
            for other in range(self._owners.count):
                experts = self._owners.of(other)
                part = own if other == rank else own.new_empty((len(experts), *own.shape[1:]))
                if part.numel():
                    dist.broadcast(part, group=self.group, group_src=other)
                    whole[experts] = part
            state[name] = whole
        return state

    def load_whole(self, state: dict[str, Tensor]) -> None:
        """Take this rank's experts, and all else, of a state of the layer with all experts.

        Raises OperandError for what is no dictionary of tensors, ShapeError where a parameter has
        another number of experts, and what `load_state_dict` raises.
        """
        if not isinstance(state, Mapping):
            raise OperandError(f"state={short(state)}: accepted is what whole_state_dict() gives")
        for name in self._names:
            if not isinstance(state.get(name), Tensor | None):
                raise OperandError(f"state[{name!r}]={short(state[name])}: accepted are tensors")
        for name in self._names:
            if name in state and state[name].shape[:1] != (self.experts,):
                shape = tuple(state[name].shape)
                raise ShapeError(f"state[{name!r}].shape={shape}: must have {self.experts} experts")
        own = self.owned.to("cpu")
        cut = {
            name: value[own.to(value.device)] if name in self._names else value
            for name, value in state.items()
        }
        self.layer.load_state_dict(cut)

    def extra_repr(self) -> str:
        """What repr() shows."""
        return (
            f"experts={self.experts}, owned={short(self.owned.tolist())},"
            f" ranks={self._owners.count}"
        )


class _Group:
    """A process group within a module: copies of the module have the same."""

    def __init__(self, group: Any) -> None:
        self.group = group

    def __deepcopy__(self, _: Any) -> _Group:
        return self

    def __reduce__(self) -> Any:
        raise OperandError(
            "ExpertParallel: a process group cannot be pickled; accepted are its state_dict() and"
            " whole_state_dict()"
        )


def _checked(group: Any) -> Any:
    """The process group of a group, a mesh or None, of which this process is a member."""
    if not dist.is_available() or not dist.is_initialized():
        raise DeviceError(
            f"group={short(group)}: torch.distributed has no process group here; accepted is a"
            " process that has called torch.distributed.init_process_group"
        )
    if group is None:
        return dist.group.WORLD
    if isinstance(group, dist.DeviceMesh):
        if group.ndim != 1:
            raise ArgumentError(f"group={short(group)}: accepted are meshes of one dimension")
        return group.get_group()
    if not isinstance(group, dist.ProcessGroup):
        outside = group == dist.GroupMember.NON_GROUP_MEMBER
        shown = "a group without this process" if outside else short(group)
        raise ArgumentError(
            f"group={shown}: accepted are None, a ProcessGroup of which this process is a member"
            " and a DeviceMesh of one dimension"
        )
    return group


def _cut(layer: nn.Module, names: tuple[str, ...], own: Tensor) -> nn.Module:
    """A copy of the layer that has some of its experts; those of others are not copied first."""
    parts: dict[int, Any] = {}
    for name in names:
        whole = getattr(layer, name)
        part = whole.detach()[own.to(whole.device)]
        parts[id(whole)] = nn.Parameter(part, requires_grad=whole.requires_grad)
    return copy.deepcopy(layer, parts)


def _check_owned(module: ExpertParallel, state: Any, prefix: str, *_: Any) -> None:
    """Raise where a state has other experts than this rank's."""
    found = state.get(f"{prefix}owned")
    if found is not None and found.tolist() != module.owned.tolist():
        raise ArgumentError(
            f"state_dict: {prefix}owned={short(found.tolist())}; accepted are the experts"
            f" {short(module.owned.tolist())} of this rank, and by load_whole what"
            " whole_state_dict gave"
        )
