"""What the benchmarks run in fresh processes: each takes one JSON object as argument and prints one."""
