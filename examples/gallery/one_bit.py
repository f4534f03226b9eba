"""
One bit an element
==================

Signs of numbers in one bit each: 1/32 of float32's memory, products by xor and popcount, exact.
Here as nearest neighbours by random hyperplanes (Charikar, "Similarity estimation techniques from
rounding algorithms", STOC 2002): the share of equal bits of two vectors tells the angle between
them.
"""

import time

import matplotlib.pyplot as plt
import numpy as np

from tilewright import onebit

rng = np.random.default_rng(0)
vectors = rng.standard_normal((2000, 64), np.float32)
queries = vectors[:500] + 0.5 * rng.standard_normal((500, 64), np.float32)
planes = rng.standard_normal((64, 1024), np.float32)

# %%
# Which side of 1,024 hyperplanes a vector lies on, packed. ``onebit.matmul`` takes its second
# operand by its columns: here vectors, as a row each.
stored = onebit.pack(vectors @ planes)
asked = onebit.pack(queries @ planes)
print(f"{stored.words.nbytes / 2**10:.0f} KiB in place of {2000 * 1024 * 4 / 2**10:.0f} as float32")
scores = onebit.matmul(asked, stored)  # int32 [500, 2000]: equal bits less different ones

# %%
# Exact, against the product of signs in float32 (whose sums of up to 1,024 are exact as well).
signs = np.sign(vectors @ planes)
asked_signs = np.sign(queries @ planes)
assert np.array_equal(scores, asked_signs @ signs.T)
print("equal to the product of signs, every element")
found = (scores.argmax(1) == np.arange(500)).mean()
assert found > 0.95
print(f"{found:.1%} of the queries find the vector that they were made of")

# %%
# In turns, beside NumPy's product of signs in float32.
ways = {
    "onebit.matmul": lambda: onebit.matmul(asked, stored),
    "NumPy, float32": lambda: asked_signs @ signs.T,
}
seconds: dict[str, list[float]] = {name: [] for name in ways}
for turn in range(12):
    for name, way in ways.items():
        begin = time.perf_counter()
        way()
        if turn:
            seconds[name].append(time.perf_counter() - begin)
medians = {name: sorted(took)[len(took) // 2] * 1e3 for name, took in seconds.items()}
for name, took in medians.items():
    print(f"{name:15} {took:6.2f} ms")
print(onebit.explain(asked, stored))

unit = [one / np.linalg.norm(one, axis=1, keepdims=True) for one in (queries, vectors)]
angle = np.degrees(np.arccos((unit[0] @ unit[1].T).clip(-1, 1)))
fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
left.scatter(angle[:, :60].ravel(), (1024 - scores[:, :60].ravel()) / 2, s=2, alpha=0.3)
left.plot([0, 180], [0, 1024], "k--", lw=1, label="expected: 1,024 · angle / 180")
left.set(xlabel="angle, degrees", ylabel="different bits", title="bits tell angles")
left.legend()
right.barh(list(medians), list(medians.values()))
right.set(xlabel="ms", title="500 x 2,000 products of 1,024 bits")
right.invert_yaxis()
plt.show()
