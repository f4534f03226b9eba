"""Products whose sizes lie on the device: planned and multiplied there, nothing read back."""
