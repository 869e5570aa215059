"""The experiments of the chapter "Asynchronous Computation"."""
