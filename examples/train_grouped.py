"""Train two small models with layers of many sizes: python examples/train_grouped.py

experts   a mixture of experts: a router sends every token to one of eight networks
types     a typed (heterogeneous) graph layer: every kind of node has a matrix of its own

On a GPU the sizes of the groups never leave it. Without one the same code runs on the processor.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from tilewright.pytorch import GroupedLinear


class MixtureOfExperts(nn.Module):
    """One of `experts` two-layer networks for each token, the likeliest that the router names.

    Shazeer et al., "Outrageously large neural networks", ICLR 2017; one expert a token as in Fedus
    et al., "Switch transformers", JMLR 2022.
    """

    def __init__(self, experts: int, width: int, hidden: int) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts)
        self.up = GroupedLinear(experts, width, hidden)
        self.down = GroupedLinear(experts, hidden, width)

    def forward(self, tokens: Tensor) -> Tensor:
        """[t, width] -> [t, width]."""
        chance, expert = self.router(tokens).softmax(-1).max(-1)
        order = expert.argsort(stable=True)
        counts = torch.zeros(self.up.groups, dtype=torch.int64, device=tokens.device)
        ends = counts.scatter_add(0, expert, torch.ones_like(expert)).cumsum(0)
        found = self.down(torch.relu(self.up(tokens[order], ends)), ends)
        return torch.zeros_like(found).index_copy(0, order, found) * chance[:, None]


class TypedLayer(nn.Module):
    """The mean of each node's neighbours through a matrix of the node's own kind.

    Schlichtkrull et al., "Modeling relational data with graph convolutional networks", ESWC 2018,
    with kinds of nodes in place of kinds of edges. Nodes are sorted by kind.
    """

    def __init__(self, kinds: int, width: int, out: int) -> None:
        super().__init__()
        self.own = GroupedLinear(kinds, width, out)
        self.neighbours = GroupedLinear(kinds, width, out, bias=False)

    def forward(self, nodes: Tensor, edges: Tensor, ends: Tensor) -> Tensor:
        """Nodes [t, width], edges [2, e] from row 0 to row 1, ends of kinds -> [t, out]."""
        source, target = edges
        count = torch.zeros(len(nodes), device=nodes.device).index_add(
            0, target, torch.ones(len(target), device=nodes.device)
        )
        total = torch.zeros_like(nodes).index_add(0, target, nodes[source])
        mean = total / count.clamp(min=1)[:, None].to(nodes.dtype)
        return self.own(nodes, ends) + self.neighbours(mean, ends)


def train_experts(device: str, steps: int) -> list[float]:
    """Losses while the experts learn a function that differs from one part of space to another."""
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randn(512, 32, generator=generator).to(device)
    part = (tokens[:, 0] > 0).long() + 2 * (tokens[:, 1] > 0).long()
    turns = torch.randn(4, 32, 32, generator=generator).to(device) / 32**0.5
    wanted = torch.einsum("ti,tij->tj", tokens, turns[part])
    torch.manual_seed(0)
    model = MixtureOfExperts(8, 32, 64).to(device)
    return _train(model, lambda: nn.functional.mse_loss(model(tokens), wanted), steps)


def train_types(device: str, steps: int) -> list[float]:
    """Losses while a typed layer learns the layer that made its data."""
    generator = torch.Generator().manual_seed(1)
    sizes = torch.tensor([37, 0, 200, 5, 91])
    ends = sizes.cumsum(0).to(device)
    nodes = torch.randn(int(sizes.sum()), 24, generator=generator).to(device)
    edges = torch.randint(0, len(nodes), (2, 1500), generator=generator).to(device)
    torch.manual_seed(1)
    teacher, model = (TypedLayer(5, 24, 16).to(device) for _ in range(2))
    wanted = teacher(nodes, edges, ends).detach()
    return _train(model, lambda: nn.functional.mse_loss(model(nodes, edges, ends), wanted), steps)


def _train(model: nn.Module, loss_of: Callable[[], Tensor], steps: int) -> list[float]:
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def main() -> None:
    """Train both, and say how the losses went."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for name, train in (("experts", train_experts), ("types", train_types)):
        losses = train(device, 200)
        print(f"{name:8} on {device}: loss {losses[0]:.3f} -> {losses[-1]:.4f}")


if __name__ == "__main__":
    main()
