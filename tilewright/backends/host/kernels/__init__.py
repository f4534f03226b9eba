"""Kernels that Numba compiles for the processor they run on; imported only when one is needed."""
