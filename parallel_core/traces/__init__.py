"""What is computed from a timeline: how busy queues were, what overlapped, what bounds a step."""
