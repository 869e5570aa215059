"""What is computed from a timeline: how busy each queue was, what overlapped, the critical path;
beside the clock.
"""
