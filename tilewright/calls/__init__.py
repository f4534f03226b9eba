"""A checked call on its way down, one file a place: arrays of the host, arrays on a GPU.

Nothing here looks at gradients or compilers: `torch_ops/` does, and then calls what is here.
"""
