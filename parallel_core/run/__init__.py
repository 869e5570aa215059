"""What an experiment's run does beyond measuring: to record its cases once more."""
