"""Kernels that multiply nothing: each drives one part of a device to its ceiling (../peak.py)."""
