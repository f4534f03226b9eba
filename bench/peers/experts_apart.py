"""A layer of experts on several ranks as it is written down without us: SwiGLU, runs of experts.

Slots are sorted by expert and their rows sent, one a slot; the rank that has the experts sorts what
came, multiplies an expert at a time by torch.mm, and sends the rows back, where they are weighted
and added up.
"""

from __future__ import annotations

from typing import Any


def layer(
    x: Any, w_up: Any, w_down: Any, experts: Any, weights: Any, total: int, group: Any
) -> Any:
    """[T, d] of x [T, d] and of experts and weights [T, K]; w_up and w_down are this rank's."""
    import torch
    import torch.distributed as dist
    from torch.distributed.nn.functional import all_to_all_single

    ranks, here = dist.get_world_size(group), len(w_up)
    flat = experts.reshape(-1)
    order = torch.argsort(flat, stable=True)
    counts = torch.bincount(flat, minlength=total)
    told = torch.empty_like(counts)
    dist.all_to_all_single(told, counts, group=group)
    both = torch.stack((counts.view(ranks, -1).sum(1), told.view(ranks, -1).sum(1)))
    sent, came = both.tolist()
    tokens = order // experts.shape[1]
    rows = _exchanged(all_to_all_single, x[tokens], came, sent, group)
    number = torch.arange(here, device=x.device).repeat(ranks)
    expert = torch.repeat_interleave(number, told)
    there = torch.argsort(expert, stable=True)
    sizes = torch.bincount(expert, minlength=here).tolist()
    made = []
    for part, up, down in zip(rows[there].split(sizes), w_up, w_down, strict=True):
        gate, other = (part @ up).chunk(2, dim=1)
        made.append((torch.nn.functional.silu(gate) * other) @ down)
    together = torch.cat(made)[torch.argsort(there)]
    back = _exchanged(all_to_all_single, together, sent, came, group)
    weight = weights.reshape(-1)[order].to(x.dtype)[:, None]
    return torch.zeros_like(x).index_add(0, tokens, back * weight)


def _exchanged(send: Any, rows: Any, came: list[int], sent: list[int], group: Any) -> Any:
    found = rows.new_empty((sum(came), rows.shape[1]))
    return send(found, rows.contiguous(), came, sent, group=group)
