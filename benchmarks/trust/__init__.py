"""How often what parallel-core says is wrong: of faults that are planted, of synthetic cells, of
counts beside other work.
"""
