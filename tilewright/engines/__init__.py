"""The contracts: what a back end, its grouped kernels, its one-bit kernels and its probes offer."""
