"""Files: a cache that processes share, files that callers name, files that others wrote."""
