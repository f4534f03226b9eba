"""Convolutions on OpenCL devices: `engines.CONV_ENGINES`; a file an engine, kernels/conv_*.cl."""
