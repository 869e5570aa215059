"""What a process does that is one of several: report, watch over its own progress, measure together with the others."""
