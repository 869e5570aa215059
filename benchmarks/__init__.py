"""Measurements whose figures the pages show, each declared in a module of `measurements` or `trust`
and run by its name:

    python -m benchmarks bench                   # the four of `make bench`
    python -m benchmarks --help                  # all names
    python -m benchmarks speed --quick           # a rehearsal of one: its figures mean nothing
    python -m benchmarks network                 # as root
    python -m benchmarks variants                # where OPENBLAS_CORETYPE is not set

Each writes results/MACHINE/FILE.json. `python -m benchmarks.tables` then writes the tables of the
pages. `make measure` runs all that they show, and `make gpu` measures a GPU.
"""
