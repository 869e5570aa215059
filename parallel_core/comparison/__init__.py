"""Compare cells (experiment × backend × engine): fresh processes in interleaved rounds, intervals,
verdicts.
"""
