"""What is computed from a timeline: how busy each queue was, what overlapped, what all waited for; and by the clock."""
