"""The runner of experiments: declaration, trial, metrics with bands, sizes and conclusions."""
