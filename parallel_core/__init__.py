"""A laboratory for how deep-learning frameworks schedule work.

>>> import backends, parallel_core
>>> backend = backends.load("torch", devices=2)
>>> result = parallel_core.run_parallel(backend)
>>> result.metrics["parallel_speedup"], result.explanation
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from parallel_core.errors import MeasurementError, RequestError
    from parallel_core.experiments.explanation import explain
    from parallel_core.measurement.benchmark import Benchmark
    from parallel_core.measurement.result import Case, Result
    from parallel_core.training.dataset import Dataset, load_fashion_mnist
    from parallel_core.training.loop import Settings

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
    "run_allreduce",
    "run_async",
    "run_barriers",
    "run_batch_norm",
    "run_batch_scaling",
    "run_building_blocks",
    "run_cost_model",
    "run_data_parallel",
    "run_dependencies",
    "run_eager_cpu",
    "run_graph",
    "run_independent_ops",
    "run_learning_rates",
    "run_overlap",
    "run_parallel",
    "run_partitioning",
    "run_small_ops",
    "run_three_way",
]

_HOMES = {
    "Benchmark": "measurement.benchmark",
    "Case": "measurement.result",
    "Dataset": "training.dataset",
    "MeasurementError": "errors",
    "RequestError": "errors",
    "Result": "measurement.result",
    "Settings": "training.loop",
    "explain": "experiments.explanation",
    "load_fashion_mnist": "training.dataset",
}


def __getattr__(name: str) -> Any:
    # What measures needs NumPy alone; a machine that is lent for its GPU may lack what shows results.
    home = "experiments" if name.startswith("run_") else _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)


if "IPython" in sys.modules and (_shell := sys.modules["IPython"].get_ipython()) is not None:
    import_module(f"{__name__}.report.notebook").register_in_notebooks(_shell)
