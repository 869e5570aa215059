"""A laboratory for how deep-learning frameworks schedule work.

>>> import backends, parallel_core
>>> backend = backends.load("torch", devices=2)
>>> result = parallel_core.run_parallel(backend)
>>> result.metrics["parallel_speedup"], result.explanation

Each experiment of the catalogue (`parallel-core list`) is a function here: `run_` and its name.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from parallel_core.experiments.explanation import explain
    from parallel_core.measurement.result import Case, Result
    from parallel_core.measurement.timing import Benchmark
    from parallel_core.own_program import profiled_step
    from parallel_core.system.errors import MeasurementError, RequestError
    from parallel_core.trace_analysis.prediction import predict
    from parallel_core.training.batches import Settings
    from parallel_core.training.dataset import Dataset, load_fashion_mnist

__all__ = [
    "Benchmark",
    "Case",
    "Dataset",
    "MeasurementError",
    "RequestError",
    "Result",
    "Settings",
    "explain",
    "load_fashion_mnist",
    "predict",
    "profiled_step",
]

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


def __getattr__(name: str) -> Any:
    # Measuring needs only NumPy; a machine that is lent for its GPU may lack the libraries that
    # show results.
    if home := HOMES.get(name):
        return getattr(import_module(f"{__name__}.{home}"), name)
    if name.startswith("run_"):
        experiments = import_module(f"{__name__}.experiments").EXPERIMENTS
        if (experiment := name.removeprefix("run_").replace("_", "-")) in experiments:
            return experiments[experiment].run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    experiments = import_module(f"{__name__}.experiments").EXPERIMENTS
    return sorted(
        [*globals(), *__all__, *(f"run_{name.replace('-', '_')}" for name in experiments)]
    )


if "IPython" in sys.modules and (_shell := sys.modules["IPython"].get_ipython()) is not None:
    import_module(f"{__name__}.report.notebook").register_in_notebooks(_shell)
