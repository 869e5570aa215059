"""What runs an experiment: its declaration, its program's trial, metrics with bands, sizes, and
what is concluded.
"""
