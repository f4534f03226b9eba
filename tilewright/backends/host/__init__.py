"""The host: NumPy and its BLAS. Always there, and the far side of the crossover."""

from tilewright.backends.host.backend import Host

BACKEND = Host()
