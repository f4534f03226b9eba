"""Convolutions on GPUs: chains as one kernel (Hopper), any shape in Triton, and the vendor's."""
