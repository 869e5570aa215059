"""What the benchmarks run in fresh processes: `python -m benchmarks.workers NAME JSON` calls a
module's `measure`.
"""
