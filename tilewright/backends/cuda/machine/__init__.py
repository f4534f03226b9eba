"""The machine under the engines: GPUs found, programs compiled, launched, recorded; tables."""
