"""A laboratory for how deep-learning frameworks schedule work.

>>> import backends, parallel_core
>>> backend = backends.load("torch", devices=2)
>>> result = parallel_core.run_parallel(backend)
>>> result.metrics["parallel_speedup"], result.explanation
"""

from typing import TYPE_CHECKING

from parallel_core.fold___init____lazily import importer

if TYPE_CHECKING:
    from parallel_core.errors import MeasurementError, RequestError
    from parallel_core.experiments import (
        run_allreduce,
        run_async,
        run_barriers,
        run_batch_norm,
        run_batch_scaling,
        run_building_blocks,
        run_cost_model,
        run_data_parallel,
        run_dependencies,
        run_eager_cpu,
        run_graph,
        run_independent_ops,
        run_learning_rates,
        run_overlap,
        run_parallel,
        run_partitioning,
        run_small_ops,
        run_three_way,
    )
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

__getattr__ = importer(
    __name__,
    {
        "Benchmark": "measurement.benchmark:Benchmark",
        "Case": "measurement.result:Case",
        "Dataset": "training.dataset:Dataset",
        "MeasurementError": "errors:MeasurementError",
        "RequestError": "errors:RequestError",
        "Result": "measurement.result:Result",
        "Settings": "training.loop:Settings",
        "explain": "experiments.explanation:explain",
        "load_fashion_mnist": "training.dataset:load_fashion_mnist",
        "run_allreduce": "experiments:run_allreduce",
        "run_async": "experiments:run_async",
        "run_barriers": "experiments:run_barriers",
        "run_batch_norm": "experiments:run_batch_norm",
        "run_batch_scaling": "experiments:run_batch_scaling",
        "run_building_blocks": "experiments:run_building_blocks",
        "run_cost_model": "experiments:run_cost_model",
        "run_data_parallel": "experiments:run_data_parallel",
        "run_dependencies": "experiments:run_dependencies",
        "run_eager_cpu": "experiments:run_eager_cpu",
        "run_graph": "experiments:run_graph",
        "run_independent_ops": "experiments:run_independent_ops",
        "run_learning_rates": "experiments:run_learning_rates",
        "run_overlap": "experiments:run_overlap",
        "run_parallel": "experiments:run_parallel",
        "run_partitioning": "experiments:run_partitioning",
        "run_small_ops": "experiments:run_small_ops",
        "run_three_way": "experiments:run_three_way",
    },
)
