"""`naive`: one element of C a work-item through any strides; the ladder's first rung."""

from __future__ import annotations

from tilewright.backends.opencl.lowering import GROUP_AXIS, UNROLL_AXIS
from tilewright.backends.opencl.strided_kernel import StridedKernel
from tilewright.facts.kernel import Config

KERNEL = StridedKernel(
    "naive",
    entry="naive",
    ladder=(Config(),),
    options=lambda problem, config: config.macros("unroll"),
    axes=(GROUP_AXIS, UNROLL_AXIS),
    smallest_k=0,
)
