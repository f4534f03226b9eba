"""The kernels of the ladder: NAME.py declares, NAME.cl computes.

A .cl file without a .py file is a pass beside a product (operands.py, vector_kernel.py, panel.py
launch it), a product of batches (grouped.py, grouped_launch.py) or of bits (bits_engines.py).
"""
