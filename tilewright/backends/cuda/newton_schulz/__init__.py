"""Newton-Schulz steps of many matrices at once on a GPU."""
