"""Start a job's processes on this machine, watch over them, and end all of them when one fails; be one of its ranks."""
