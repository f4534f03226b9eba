"""Which version this is, in a file of its own: what stores measurements names it in their keys."""

__version__ = "0.1.0"
