"""
A mixture of experts
====================

A router sends every token to two of eight small networks. :obj:`tilewright.pytorch.MoE` is the
whole layer: routes, both products, the gated activation between them, the weighted sum.
"""

import time

import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn

from tilewright.pytorch import MoE

torch.manual_seed(0)
layer = MoE(8, 64, 48, top=2)  # eight experts, 64 features, 48 hidden
tokens = torch.randn(512, 64)

# %%
# What the layer computes, written out with a loop over experts: the test of equality.


def by_loop(x: Tensor) -> Tensor:
    experts, weights = layer.route(x)
    y = torch.zeros_like(x)
    for expert in range(8):
        row, place = (experts == expert).nonzero(as_tuple=True)
        gate, up = (x[row] @ layer.w_up[expert]).chunk(2, -1)
        found = (nn.functional.silu(gate) * up) @ layer.w_down[expert]
        y = y.index_add(0, row, found * weights[row, place, None])
    return y


torch.testing.assert_close(layer(tokens), by_loop(tokens), atol=1e-5, rtol=1e-4)
print("equal to a loop over the experts")

# %%
# It learns: a function that differs from one part of space to another.
part = (tokens[:, 0] > 0).long() + 2 * (tokens[:, 1] > 0).long()
turns = torch.randn(4, 64, 64) / 8
wanted = torch.einsum("ti,tij->tj", tokens, turns[part])
before = torch.bincount(layer.route(tokens)[0].flatten(), minlength=8)
optimizer = torch.optim.Adam(layer.parameters(), lr=1e-2)
losses = []
for _ in range(100):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(layer(tokens), wanted)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
after = torch.bincount(layer.route(tokens)[0].flatten(), minlength=8)
assert losses[-1] < losses[0] / 4
print(f"loss {losses[0]:.3f} -> {losses[-1]:.4f}")

# %%
# Forward passes in turns.
seconds: dict[str, list[float]] = {"MoE": [], "a loop": []}
with torch.no_grad():
    for _ in range(11):
        for name, way in (("MoE", layer), ("a loop", by_loop)):
            begin = time.perf_counter()
            way(tokens)
            seconds[name].append(time.perf_counter() - begin)
medians = {name: sorted(took)[len(took) // 2] * 1e3 for name, took in seconds.items()}
print(", ".join(f"{name} {took:.2f} ms" for name, took in medians.items()))

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
left.plot(losses)
left.set(xlabel="step", ylabel="mean squared error", yscale="log", title="what it learned")
right.bar([x - 0.2 for x in range(8)], before, 0.4, label="before")
right.bar([x + 0.2 for x in range(8)], after, 0.4, label="after")
right.set(xlabel="expert", ylabel="tokens", title="rows of each product")
right.legend()
plt.show()
