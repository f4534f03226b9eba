"""Files: what processes share, what callers name, what others wrote, and whom to trust."""
