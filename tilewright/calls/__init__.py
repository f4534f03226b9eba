"""Checked calls on their way to a launch: arrays of the host, arrays on a GPU, a file a step.

Nothing here looks at gradients or compilers: `torch_ops/` does, and then calls what is here.
"""
