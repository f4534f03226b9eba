"""Networks of bits and reals: layers, passes over memory, programs, files."""
