"""The kernels of the ladder: NAME.py declares, NAME.cl computes."""
