"""
Block-sparse matrices
=====================

The blocks of a SciPy BSR matrix are a batch of products: each stored block times the rows of the
dense operand that stand at its column, summed into the rows of its block row. ``into=`` says which
products are added; no block of zeros is stored or multiplied.
"""

import time

import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse

import tilewright as tw

# %%
# A matrix of 60 x 60 blocks of 32 x 32, a tenth of them stored: a band and a few far away.
side, grid, columns = 32, 60, 128
rng = np.random.default_rng(0)
row, column = np.indices((grid, grid))
stored = (abs(row - column) < 2) | (rng.random((grid, grid)) < 0.05)
stored[20] = False  # a block row of nothing
pattern = scipy.sparse.csr_matrix(stored.astype(np.float32))
blocks = rng.standard_normal((pattern.nnz, side, side), np.float32)
sparse = scipy.sparse.bsr_matrix((blocks, pattern.indices, pattern.indptr), blocksize=(side, side))
dense = rng.standard_normal((grid * side, columns), np.float32)
print(f"{len(blocks)} of {grid**2} blocks stored, {len(blocks) / grid**2:.0%}")

# %%
# One batch: operands are views, the blocks come without a copy. Results are block rows that have
# blocks at all, each the sum of its products.
left = tw.RaggedBatch.from_bsr(sparse)
place = dense.reshape(grid, side, columns)
right = [place[index] for index in sparse.indices]
full, result = np.unique(np.repeat(np.arange(grid), np.diff(sparse.indptr)), return_inverse=True)
left_blocks = [left[index] for index in range(len(blocks))]
product = np.zeros((grid, side, columns), np.float32)
out = [product[index] for index in full]


def batch() -> np.ndarray:
    tw.grouped_matmul(left_blocks, right, into=result, out=out)
    return product.reshape(-1, columns)


expected = sparse.astype(np.float64) @ dense.astype(np.float64)
error = abs(batch() - expected).max() / abs(expected).max()
assert error < 1e-6
print(f"largest error against float64: {error:.1e}")

# %%
# Beside SciPy's own product and NumPy's of the matrix filled with zeros, in turns. A batch whose
# sizes and addresses stay is bound once and only launches then.
filled = sparse.toarray()
sizes = [np.full(len(blocks), n) for n in (side, columns, side)]
bound = tw.plan_grouped(*sizes).bind(left_blocks, right, out=out, into=result)
ways = {
    "grouped_matmul, bound": bound,
    "grouped_matmul": batch,
    "SciPy's BSR": lambda: sparse @ dense,
    "NumPy, with zeros": lambda: filled @ dense,
}
seconds: dict[str, list[float]] = {name: [] for name in ways}
for turn in range(8):
    for name, way in ways.items():
        begin = time.perf_counter()
        way()
        if turn:
            seconds[name].append(time.perf_counter() - begin)
medians = {name: sorted(took)[len(took) // 2] * 1e3 for name, took in seconds.items()}
for name, took in medians.items():
    print(f"{name:22} {took:6.2f} ms")

fig, (one, two) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
one.imshow(stored, cmap="Blues")
one.set(title="blocks that are stored")
two.barh(list(medians), list(medians.values()))
two.set(xlabel="ms", title=f"times a dense matrix of {columns} columns")
two.invert_yaxis()
plt.show()
