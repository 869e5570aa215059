"""The book's experiments. Each is a function of a backend that returns a frozen result; none names a framework."""

from typing import TYPE_CHECKING

from parallel_core.fold___init____lazily import importer

if TYPE_CHECKING:
    from parallel_core.experiments.asynchronous_computation.asynchronous import run as run_async
    from parallel_core.experiments.asynchronous_computation.barriers import run as run_barriers
    from parallel_core.experiments.asynchronous_computation.cost_model import run as run_cost_model
    from parallel_core.experiments.asynchronous_computation.eager_cpu import run as run_eager_cpu
    from parallel_core.experiments.automatic_parallelism.dependencies import run as run_dependencies
    from parallel_core.experiments.automatic_parallelism.graph import run as run_graph
    from parallel_core.experiments.automatic_parallelism.independent_ops import run as run_independent_ops
    from parallel_core.experiments.automatic_parallelism.overlap import run as run_overlap
    from parallel_core.experiments.automatic_parallelism.parallel import run as run_parallel
    from parallel_core.experiments.automatic_parallelism.small_ops import run as run_small_ops
    from parallel_core.experiments.automatic_parallelism.three_way import run as run_three_way
    from parallel_core.experiments.fold___init____catalogue import EXPERIMENTS, Experiment
    from parallel_core.experiments.training_on_multiple_gpus.allreduce import run as run_allreduce
    from parallel_core.experiments.training_on_multiple_gpus.allreduce.between_processes import (
        run_between_processes as run_allreduce_between,
    )
    from parallel_core.experiments.training_on_multiple_gpus.batch_norm import run as run_batch_norm
    from parallel_core.experiments.training_on_multiple_gpus.batch_scaling import run as run_batch_scaling
    from parallel_core.experiments.training_on_multiple_gpus.building_blocks import run as run_building_blocks
    from parallel_core.experiments.training_on_multiple_gpus.data_parallel import run as run_data_parallel
    from parallel_core.experiments.training_on_multiple_gpus.learning_rates import run as run_learning_rates
    from parallel_core.experiments.training_on_multiple_gpus.partitioning import run as run_partitioning

__all__ = [
    "EXPERIMENTS",
    "Experiment",
    "run_allreduce",
    "run_allreduce_between",
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
        "EXPERIMENTS": "fold___init____catalogue:EXPERIMENTS",
        "Experiment": "fold___init____catalogue:Experiment",
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
    },
)
