"""Products of 8-bit floats with scales and of int8, cut into groups by a tensor on the device."""
