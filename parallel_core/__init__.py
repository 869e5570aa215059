"""A laboratory for how deep-learning frameworks schedule work.

>>> import backends, parallel_core
>>> backend = backends.load("torch", devices=2)
>>> result = parallel_core.run_parallel(backend)
>>> result.metrics["parallel_speedup"], result.explanation
"""

from parallel_core.dataset import Dataset, load_fashion_mnist
from parallel_core.errors import MeasurementError, RequestError
from parallel_core.experiments import (
    run_allreduce,
    run_async,
    run_barriers,
    run_batch_norm,
    run_cost_model,
    run_data_parallel,
    run_dependencies,
    run_eager_cpu,
    run_graph,
    run_independent_ops,
    run_overlap,
    run_parallel,
    run_partitioning,
    run_small_ops,
    run_three_way,
)
from parallel_core.explanation import explain
from parallel_core.measurement import Benchmark
from parallel_core.result import Case, Result
from parallel_core.training import Settings

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
    "run_cost_model",
    "run_data_parallel",
    "run_dependencies",
    "run_eager_cpu",
    "run_graph",
    "run_independent_ops",
    "run_overlap",
    "run_parallel",
    "run_partitioning",
    "run_small_ops",
    "run_three_way",
]
