"""What a user writes: `matmul`, `grouped_matmul`, `ragged_matmul`, and the float64 reference."""
