"""OpenCL: any device with a driver, from a phone's GPU to this machine's own cores.

runtime.py finds drivers, describe.py reads a device's facts, rules.toml holds what vendors taught,
lowering.py, operands.py and the *_kernel.py files turn problems into launches, program.py compiles
and caches, memory.py shares memory, launch.py runs one product, grouped.py and batches.py many.
kernels/ has one stem a kernel.
"""

from tilewright.backends.opencl.backend import OpenCL

BACKEND = OpenCL()
