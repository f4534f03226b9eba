"""Adapters of few rows: each row by its own two matrices, where sorting them would take longer."""
