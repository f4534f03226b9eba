"""
A typed graph layer
===================

Nodes of a heterogeneous graph (authors, papers, venues) have a weight matrix for each kind of node
or of edge. Sorted by kind, that is one product with groups of rows: no loop, no padding to the most
frequent kind. The layer is that of Schlichtkrull et al., "Modeling relational data with graph
convolutional networks", ESWC 2018.
"""

import time

import matplotlib.pyplot as plt
import torch
from torch import nn

import tilewright as tw

torch.manual_seed(0)

# %%
# A graph whose 40 kinds of edges are as uneven as they are in real graphs: a few are frequent, most
# are rare.
nodes, kinds, width, out = 2000, 40, 64, 32
count = (15000 / torch.arange(1, kinds + 1) ** 1.2 / 4).long()
kind = torch.arange(kinds).repeat_interleave(count)  # sorted by kind
source, target = (torch.randint(0, nodes, kind.shape) for _ in range(2))
ends = count.cumsum(0)
print(f"{len(kind)} edges of {kinds} kinds, {int(count.min())} to {int(count.max())} of each")

# %%
# The layer: features of each edge's source through the matrix of the edge's kind, summed at its
# target. ``ragged_matmul`` takes the offsets as a tensor, so that on a GPU nothing is read back.
features = torch.randn(nodes, width)
weight = nn.Parameter(torch.randn(kinds, width, out) / width**0.5)


def layer() -> torch.Tensor:
    messages = tw.ragged_matmul(features[source], weight, ends)
    return torch.zeros(nodes, out).index_add(0, target, messages)


def loop() -> torch.Tensor:
    total = torch.zeros(nodes, out)
    for index, (begin, end) in enumerate(zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True)):
        messages = features[source[begin:end]] @ weight[index]
        total = total.index_add(0, target[begin:end], messages)
    return total


def gathered() -> torch.Tensor:
    messages = torch.bmm(features[source][:, None], weight[kind])[:, 0]  # a matrix an edge
    return torch.zeros(nodes, out).index_add(0, target, messages)


# %%
# Equal, gradients too.
ways = {"ragged_matmul": layer, "a loop over kinds": loop, "a matrix an edge": gathered}
results = {name: way() for name, way in ways.items()}
gradients = {name: torch.autograd.grad(y.square().sum(), weight)[0] for name, y in results.items()}
for name in ways:
    torch.testing.assert_close(results[name], results["ragged_matmul"], atol=1e-3, rtol=1e-4)
    torch.testing.assert_close(gradients[name], gradients["ragged_matmul"], atol=1e-1, rtol=1e-3)
print("all ways give the same results and gradients")

# %%
# Seconds of a step, forward and backward, in turns.
seconds: dict[str, list[float]] = {name: [] for name in ways}
for _ in range(3):
    for name, way in ways.items():
        begin = time.perf_counter()
        way().square().sum().backward()
        seconds[name].append(time.perf_counter() - begin)
medians = {name: sorted(took)[len(took) // 2] * 1e3 for name, took in seconds.items()}
for name, took in medians.items():
    print(f"{name:18} {took:7.1f} ms")

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
left.bar(range(kinds), count)
left.set(xlabel="kind of edge", ylabel="edges", title="rows of each product")
right.barh(list(medians), list(medians.values()))
right.set(xlabel="ms, forward and backward", title="a step")
right.invert_yaxis()
plt.show()
