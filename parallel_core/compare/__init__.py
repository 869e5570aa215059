"""Compare cells (experiment × backend × engine): fresh processes that take turns, intervals,
verdicts.
"""
