"""The book's experiments. Each is a function of a backend that returns a frozen result; none names a framework."""

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any

from parallel_core.experiments import asynchronous_computation, automatic_parallelism, training_on_multiple_gpus
from parallel_core.experiments.experiment import Experiment, Mode

__all__ = ["EXPERIMENTS", "Experiment", "Mode"]

CHAPTERS = (asynchronous_computation, automatic_parallelism, training_on_multiple_gpus)

EXPERIMENTS: Mapping[str, Experiment] = MappingProxyType(
    {experiment.name: experiment for chapter in CHAPTERS for experiment in chapter.EXPERIMENTS}
)
"""All experiments by name, in the order of the book's chapters."""

_RUNS = {
    "run_allreduce": "training_on_multiple_gpus.allreduce:run",
    "run_allreduce_between": "training_on_multiple_gpus.allreduce.between_processes:run_between_processes",
    "run_async": "asynchronous_computation.asynchronous:run",
    "run_barriers": "asynchronous_computation.barriers:run",
    "run_batch_norm": "training_on_multiple_gpus.batch_norm:run",
    "run_batch_scaling": "training_on_multiple_gpus.batch_scaling:run",
    "run_building_blocks": "training_on_multiple_gpus.building_blocks:run",
    "run_cost_model": "asynchronous_computation.cost_model:run",
    "run_data_parallel": "training_on_multiple_gpus.data_parallel:run",
    "run_dependencies": "automatic_parallelism.dependencies:run",
    "run_eager_cpu": "asynchronous_computation.eager_cpu:run",
    "run_graph": "automatic_parallelism.graph:run",
    "run_independent_ops": "automatic_parallelism.independent_ops:run",
    "run_learning_rates": "training_on_multiple_gpus.learning_rates:run",
    "run_overlap": "automatic_parallelism.overlap:run",
    "run_parallel": "automatic_parallelism.parallel:run",
    "run_partitioning": "training_on_multiple_gpus.partitioning:run",
    "run_small_ops": "automatic_parallelism.small_ops:run",
    "run_three_way": "automatic_parallelism.three_way:run",
}


def __getattr__(name: str) -> Any:
    if name not in _RUNS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = _RUNS[name].partition(":")
    return getattr(import_module(f"{__name__}.{module}"), attribute)
