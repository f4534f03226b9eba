"""What under_oclgrind.py runs of the grouped kernels: `grouped_lanes`, which only CPUs launch.

Operands lie in buffers of the simulator, which has no system SVM.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilewright import Device
from tilewright.backends.grouped import GroupedOperands
from tilewright.backends.opencl.grouped import CpuGroups
from tilewright.grouped_host import on_device
from tilewright.planning.grouped import lay_out
from tilewright.ragged import RaggedBatch

# One vector, two, three, and one past them; 4 and 8 rows; in place and packed; k in two blocks.
SIZES = ((1, 1, 1), (3, 17, 5), (9, 33, 4), (37, 49, 3), (5, 7, 90), (34, 50, 86), (4, 5, 0))


def multiply(simulator: Device) -> None:
    """Every size with and without what the plain store leaves out, compared with NumPy."""
    device = replace(simulator, kind="cpu")
    kernel = CpuGroups(device, "float32")
    m, n, k = zip(*SIZES, strict=True)
    layout = lay_out(m, n, k, kernel.tiles, kernel.slots)
    a, b, c = (_draw(rows, cols) for rows, cols in ((m, k), (k, n), (m, n)))
    two = np.full(len(SIZES), 2.0)
    for keep, activation in ((0.0, "none"), (0.5, "relu")):
        left, right, results = (batch.to(device) for batch in (a, b, c))
        operands = GroupedOperands(
            on_device(left),
            on_device(right),
            on_device(results),
            None,
            two,
            keep * two,
            activation,
            "float32",
        )
        kernel.bind(layout, operands)()
        for x, y, z, result in zip(a, b, c, results.to("host"), strict=True):
            expected = 2.0 * (x @ y) + 2.0 * keep * z
            expected = np.maximum(expected, 0) if activation == "relu" else expected
            np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


def _draw(rows: tuple[int, ...], cols: tuple[int, ...]) -> RaggedBatch:
    batch = RaggedBatch.empty(list(zip(rows, cols, strict=True)))
    batch.flat[:] = np.random.default_rng(len(rows)).standard_normal(batch.flat.size)
    return batch
