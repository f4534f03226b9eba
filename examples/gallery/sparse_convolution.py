"""
Sparse convolution: gather, multiply, scatter
=============================================

Points of a scan fill a few hundredths of the voxels. A submanifold convolution (Graham, Engelcke
and van der Maaten, CVPR 2018) computes only where points are: for each of the 27 offsets of a 3 x
3 x 3 window, rows of neighbours are gathered, multiplied by that offset's matrix, and added to
the rows of their centres. The 27 products differ in their number of rows: groups of one ragged
product.
"""

import time

import matplotlib.pyplot as plt
import torch

import tilewright as tw

torch.manual_seed(0)
side, inputs, outputs = 48, 16, 32

# %%
# A sphere's and a floor's voxels, and features of them.
z, y, x = torch.meshgrid(*[torch.arange(side)] * 3, indexing="ij")
radius = ((z - 24) ** 2 + (y - 24) ** 2 + (x - 24) ** 2).sqrt()
filled = ((radius - 16).abs() < 0.6) | ((z == 4) & (torch.rand(side, side, side) < 0.7))
points = filled.nonzero()
features = torch.randn(len(points), inputs)
weight = torch.randn(27, inputs, outputs) / (27 * inputs) ** 0.5
print(f"{len(points)} of {side**3} voxels, {len(points) / side**3:.1%}")

# %%
# The map of neighbours: for each offset the rows that it takes from, and the rows it adds to.
index = torch.full((side + 2,) * 3, -1)
index[1:-1, 1:-1, 1:-1][filled] = torch.arange(len(points))
offsets = torch.cartesian_prod(*[torch.tensor([-1, 0, 1])] * 3)
sources, targets, counts = [], [], []
for offset in offsets:
    neighbour = index[tuple((points + 1 + offset).T)]
    target = (neighbour >= 0).nonzero()[:, 0]
    sources.append(neighbour[target])
    targets.append(target)
    counts.append(len(target))
source, target = torch.cat(sources), torch.cat(targets)
ends = torch.tensor(counts).cumsum(0)
print(f"27 products of {min(counts)} to {max(counts)} rows")


def sparse() -> torch.Tensor:
    products = tw.ragged_matmul(features[source], weight, ends)
    return torch.zeros(len(points), outputs).index_add(0, target, products)


# %%
# Equal to the dense convolution where points are.
grid = torch.zeros(1, inputs, side, side, side)
grid[0][:, filled] = features.T
window = weight.reshape(3, 3, 3, inputs, outputs).permute(4, 3, 0, 1, 2).contiguous()


def dense() -> torch.Tensor:
    return torch.nn.functional.conv3d(grid, window, padding=1)


result = sparse()
torch.testing.assert_close(result, dense()[0][:, filled].T, atol=1e-5, rtol=1e-4)
print("equal to torch's dense convolution at every point")

# %%
# In turns.
seconds: dict[str, list[float]] = {"gather, ragged, scatter": [], "dense": []}
for turn in range(6):
    for name, way in zip(seconds, (sparse, dense), strict=True):
        begin = time.perf_counter()
        way()
        if turn:
            seconds[name].append(time.perf_counter() - begin)
medians = {name: sorted(took)[len(took) // 2] * 1e3 for name, took in seconds.items()}
print(", ".join(f"{name} {took:.1f} ms" for name, took in medians.items()))

fig = plt.figure(figsize=(9, 3.6), layout="constrained")
space = fig.add_subplot(1, 2, 1, projection="3d")
space.scatter(points[:, 2], points[:, 1], points[:, 0], c=result.norm(dim=1), s=1)
space.set(title="length of the result at each point", xticks=[], yticks=[], zticks=[])
bars = fig.add_subplot(1, 2, 2)
bars.bar(range(27), counts)
bars.set(xlabel="offset of the window", ylabel="rows", title="rows of each product")
plt.show()
