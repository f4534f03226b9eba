"""JAX: products of groups of rows, under jit and grad. Importing it imports JAX.

ragged_dot        what `jax.lax.ragged_dot` gives, by our kernels, with both gradients
"""

from tilewright.jax.ragged import ragged_dot

__all__ = ["ragged_dot"]
