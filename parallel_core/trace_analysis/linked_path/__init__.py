"""The critical path of a trace that records the host's nested calls and links operations to them."""
