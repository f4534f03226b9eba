"""Draws splits of rows into groups, and what each row makes with each matrix on its own.

TRITON_INTERPRET=1 python -m tests.support.interpreter invariance
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

import tilewright as tw
from tilewright.backends.cuda.ragged import engine


class Rows:
    """Rows, matrices, and `alone` [matrices, rows, n]: products of the rows one by one."""

    def __init__(self, count: int, k: int, n: int, groups: int, dtype: Any, device: str) -> None:
        """The same ones each time."""
        generator = torch.Generator().manual_seed(count + k)
        self.x = torch.randn(count, k, generator=generator, dtype=torch.float64).to(device, dtype)
        self.w = torch.randn(groups, k, n, generator=generator).to(device, dtype)
        self.alone = torch.stack([self._by_itself(group) for group in range(groups)])

    def _by_itself(self, group: int) -> Any:
        """All rows with one matrix: a few one by one, which must agree with all at once."""
        w = self.w[group : group + 1]
        ends = torch.tensor([len(self.x)], device=self.x.device)
        found = tw.ragged_matmul(self.x, w, ends, batch_invariant=True)
        one = torch.tensor([1], device=self.x.device)
        for row in (0, 1, len(self.x) // 2, len(self.x) - 1):
            x = self.x[row : row + 1]
            alone = tw.ragged_matmul(x, w, one, batch_invariant=True)
            assert torch.equal(found[row : row + 1], alone)
        return found

    def error(self) -> float:
        """The largest, beside sums of magnitudes."""
        return self._error(self.alone)

    def error_of_torch(self) -> float:
        """The same of torch's product in the same dtype."""
        return self._error(torch.stack([self.x @ w for w in self.w]))

    def _error(self, found: Any) -> float:
        x, w = self.x.double(), self.w.double()
        wanted = torch.stack([x @ one for one in w])
        sizes = torch.stack([x.abs() @ one.abs() for one in w])
        return float(((found.double() - wanted).abs() / sizes).max())


def drawn_splits(count: int, rows: Rows, seed: int) -> Iterator[tuple[Any, Any, Any]]:
    """Offsets; which rows, in any order; and whose matrix each meets."""
    generator = torch.Generator().manual_seed(seed)
    groups, device = len(rows.w), rows.x.device
    for turn in range(count):
        taken = int(torch.randint(1, len(rows.x) + 1, (1,), generator=generator))
        which = torch.randperm(len(rows.x), generator=generator)[:taken]
        # From evenly dealt to nearly all for one; every fifth time a single row somewhere.
        chances = torch.rand(groups, generator=generator) ** (1 + turn % 7) + 1e-6
        owners = torch.multinomial(chances, taken, replacement=True, generator=generator).sort()[0]
        if turn % 5 == 0:
            which, owners = which[:1], owners[:1]
        ends = torch.bincount(owners, minlength=groups).cumsum(0).int()
        yield ends.to(device), which.to(device), owners.to(device)


def drawn_layers(count: int, activation: str, dtype: Any, device: str) -> Iterator[tuple[Any, Any]]:
    """Results of some tokens of a layer, and of the same tokens with all others."""
    generator = torch.Generator().manual_seed(1)
    tokens, groups, top, d, n = 64, 6, 2, 64, 64
    width = 2 * n if activation.endswith("glu") else n
    sizes = ((tokens, d), (groups, d, width), (groups, n, d), (tokens, top))
    given = [torch.randn(size, generator=generator).to(device, dtype) for size in sizes]
    x, w_up, w_down, weights = given
    experts = torch.rand(tokens, groups, generator=generator).topk(top).indices.to(device)

    def layer(which: Any) -> Any:
        routes = (experts[which], weights[which])
        more = {"activation": activation, "batch_invariant": True}
        return tw.moe(x[which], w_up, w_down, *routes, **more)

    whole = layer(torch.arange(tokens, device=device))
    for _ in range(count):
        taken = int(torch.randint(1, tokens + 1, (1,), generator=generator))
        which = torch.randperm(tokens, generator=generator)[:taken].to(device)
        yield layer(which), whole[which]


def main() -> None:
    """Triton's rows, in its interpreter: as many as fill tall tiles, and few."""
    generator = torch.Generator().manual_seed(2)
    x, w = (torch.randn(size, generator=generator) for size in ((70, 40), (2, 40, 24)))
    ends = torch.tensor([70, 70])
    whole = torch.empty(70, 24)
    engine.rows(x, w, ends, None, whole, "ieee alone", clear=False)
    torch.testing.assert_close(whole, x @ w[0], rtol=0, atol=1e-4)
    for first, last in ((0, 1), (3, 40), (69, 70)):
        out = torch.empty(last - first, 24)
        ends = torch.tensor([last - first] * 2)
        engine.rows(x[first:last], w, ends, None, out, "ieee alone", clear=False)
        assert torch.equal(out, whole[first:last])
    print("splits: the same bits")
