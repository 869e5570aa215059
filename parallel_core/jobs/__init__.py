"""Start a job's processes on this machine, and end all of them when one fails; be one of its
ranks.
"""
