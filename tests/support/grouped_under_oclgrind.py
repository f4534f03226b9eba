"""What under_oclgrind.py runs of the grouped kernels: `grouped_lanes`, which only CPUs launch.

Operands lie in buffers of the simulator, which has no system SVM.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilewright import Device
from tilewright.backends.host.backend import activate
from tilewright.backends.opencl.grouped import CpuGroups
from tilewright.calls.grouped_loop_host import operands_of
from tilewright.inputs.batch import Call
from tilewright.inputs.matrices import matrices
from tilewright.inputs.ragged_batch import RaggedBatch
from tilewright.planning.grouped import lay_out

# One vector, two, three, and one past them; 4 and 8 rows; in place and packed; k in two blocks.
SIZES = ((1, 1, 1), (3, 17, 5), (9, 33, 4), (37, 49, 3), (5, 7, 90), (34, 50, 86), (4, 5, 0))


def multiply(simulator: Device) -> None:
    """Every size with every way of storing, compared with NumPy."""
    device = replace(simulator, kind="cpu")
    kernel = CpuGroups(device, "float32")
    m, n, k = zip(*SIZES, strict=True)
    layout = lay_out(m, n, k, kernel.tiles, kernel.slots)
    a, b, c = (_draw(rows, cols) for rows, cols in ((m, k), (k, n), (m, n)))
    bias = _draw((1,) * len(n), n)
    two = np.full(len(SIZES), 2.0)
    for keep, shifted, activation in (
        (0.0, False, "none"),
        (0.5, False, "relu"),
        (0.0, True, "none"),
        (0.5, True, "relu"),
        (0.5, True, "gelu"),
    ):
        left, right, results, shift = (batch.to(device) for batch in (a, b, c, bias))
        x, y, z, v = (matrices(batch, "batch") for batch in (left, right, results, shift))
        call = Call(x, y, z, v if shifted else None, two, keep * two, activation, list)
        kernel.bind(layout, operands_of(call))()
        for x, y, z, v, result in zip(a, b, c, bias, results.to("host"), strict=True):
            expected = activate(2.0 * (x @ y) + 2.0 * keep * z + v * shifted, activation)
            np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


def _draw(rows: tuple[int, ...], cols: tuple[int, ...]) -> RaggedBatch:
    batch = RaggedBatch.empty(list(zip(rows, cols, strict=True)))
    batch.flat[:] = np.random.default_rng(len(rows)).standard_normal(batch.flat.size)
    return batch
