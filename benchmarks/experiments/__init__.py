"""Runs of our own experiments: every exercise once, their variants against the defaults, and
overlap.
"""
