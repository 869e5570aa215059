"""A laboratory for how deep-learning frameworks schedule work.

>>> import backends, parallel_core
>>> backend = backends.load("torch", devices=2)
>>> result = parallel_core.run_parallel(backend)
>>> result.metrics["parallel_speedup"], result.explanation

Each experiment of the catalogue (`parallel-core list`) is a function here: `run_` and its name.
"""

import sys
from importlib import import_module
from typing import Any

HOMES = {
    "Benchmark": "measurement.timing",
    "Case": "measurement.result",
    "Dataset": "training.dataset",
    "MeasurementError": "system.errors",
    "RequestError": "system.errors",
    "Result": "measurement.result",
    "Settings": "training.batches",
    "explain": "experiments.explanation",
    "load_fashion_mnist": "training.dataset",
    "predict": "trace_analysis.prediction",
    "profiled_step": "own_program",
}
"""The module of each public name; the stub `__init__.pyi` shows them to editors, and the functions
of experiments too.
"""
__all__ = [*HOMES]


def __getattr__(name: str) -> Any:
    # Measuring needs only NumPy; a machine that is lent for its GPU may lack the libraries that
    # show results.
    if name in HOMES:
        return getattr(import_module(f"{__name__}.{HOMES[name]}"), name)
    if name.startswith("run_"):
        experiments = import_module(f"{__name__}.experiments").EXPERIMENTS
        experiment = experiments.get(name.removeprefix("run_").replace("_", "-"))
        if experiment is not None:
            return experiment.run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    experiments = import_module(f"{__name__}.experiments").EXPERIMENTS
    functions = [f"run_{name.replace('-', '_')}" for name in experiments]
    return sorted([*globals(), *__all__, *functions])


if "IPython" in sys.modules and (_shell := sys.modules["IPython"].get_ipython()) is not None:
    import_module(f"{__name__}.report.notebook").register_in_notebooks(_shell)
