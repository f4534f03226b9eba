"""Benchmarks: what a user would pick instead, beside us, in one run."""
