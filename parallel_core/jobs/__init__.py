"""Start a job's processes here and on other hosts, watch over them, and end all of them when one fails."""
