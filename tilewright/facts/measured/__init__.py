"""What was measured of chips, a file a chip, and how a device compares with one (scale.py)."""
