"""The host as a back end: NumPy and its BLAS. It is always there, and what devices must beat."""

from tilewright.backends.host.backend import Host

BACKEND = Host()
