"""NumPy: the synchronous reference for every number."""
