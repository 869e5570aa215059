"""Benchmarks of training: its speed, what grows with it, and exchanging gradients in one process
and between hosts.
"""
