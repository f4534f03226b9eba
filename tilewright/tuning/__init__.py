"""Measuring: the probe that finds the crossover with the host, and the store that keeps it."""
