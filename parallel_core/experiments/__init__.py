"""The book's experiments. Each is a function of a backend that returns a frozen result; none names a framework."""

from typing import TYPE_CHECKING

from parallel_core.lazily import importer

if TYPE_CHECKING:
    from parallel_core.experiments.allreduce import run as run_allreduce
    from parallel_core.experiments.allreduce.between_processes import run_between_processes as run_allreduce_between
    from parallel_core.experiments.asynchronous import run as run_async
    from parallel_core.experiments.barriers import run as run_barriers
    from parallel_core.experiments.batch_norm import run as run_batch_norm
    from parallel_core.experiments.batch_scaling import run as run_batch_scaling
    from parallel_core.experiments.building_blocks import run as run_building_blocks
    from parallel_core.experiments.catalogue import EXPERIMENTS, Experiment
    from parallel_core.experiments.cost_model import run as run_cost_model
    from parallel_core.experiments.data_parallel import run as run_data_parallel
    from parallel_core.experiments.dependencies import run as run_dependencies
    from parallel_core.experiments.eager_cpu import run as run_eager_cpu
    from parallel_core.experiments.graph import run as run_graph
    from parallel_core.experiments.independent_ops import run as run_independent_ops
    from parallel_core.experiments.learning_rates import run as run_learning_rates
    from parallel_core.experiments.overlap import run as run_overlap
    from parallel_core.experiments.parallel import run as run_parallel
    from parallel_core.experiments.partitioning import run as run_partitioning
    from parallel_core.experiments.small_ops import run as run_small_ops
    from parallel_core.experiments.three_way import run as run_three_way

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
        "EXPERIMENTS": "catalogue:EXPERIMENTS",
        "Experiment": "catalogue:Experiment",
        "run_allreduce": "allreduce:run",
        "run_allreduce_between": "allreduce.between_processes:run_between_processes",
        "run_async": "asynchronous:run",
        "run_barriers": "barriers:run",
        "run_batch_norm": "batch_norm:run",
        "run_batch_scaling": "batch_scaling:run",
        "run_building_blocks": "building_blocks:run",
        "run_cost_model": "cost_model:run",
        "run_data_parallel": "data_parallel:run",
        "run_dependencies": "dependencies:run",
        "run_eager_cpu": "eager_cpu:run",
        "run_graph": "graph:run",
        "run_independent_ops": "independent_ops:run",
        "run_learning_rates": "learning_rates:run",
        "run_overlap": "overlap:run",
        "run_parallel": "parallel:run",
        "run_partitioning": "partitioning:run",
        "run_small_ops": "small_ops:run",
        "run_three_way": "three_way:run",
    },
)
