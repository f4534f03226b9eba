"""Measuring: ceilings, the crossover with the host, tuned configurations, and their store."""
