"""How often what parallel-core says is wrong: faults that are planted, cells that are the same,
counts beside other work.
"""
