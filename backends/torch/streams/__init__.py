"""Queues made of worker threads, and the futures that they compute."""
