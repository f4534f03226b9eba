"""Products of 8-bit floats with scales, groups of rows or of k as a tensor on the device says."""
