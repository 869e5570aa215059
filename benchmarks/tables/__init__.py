"""Write the README's tables of measured numbers from the files that they come from: `python -m benchmarks.tables`."""
