"""Write the pages' tables of measured numbers from the files that they come from: `python -m
benchmarks.tables`.

Each table's block in the README or in `docs/` names its folder. What measures the files in it, on
an idle machine:

    parallel-core compare --backends mxnet,torch,jax \
        --python jax=.venv-jax/bin/python --out benchmarks/results/MACHINE
    python -m benchmarks.run_all                         # abstraction, overlap, allreduce, training
    python -m benchmarks.experiments.exercises         # each exercise once, a first run and a trace
    # where OPENBLAS_CORETYPE is not set
    python -m benchmarks.experiments.variants
    python -m benchmarks.processes --rounds 9
    python -m benchmarks.training.network                # as root
    python -m benchmarks.self_test --real 3 --out benchmarks/results/MACHINE/self-test
"""
