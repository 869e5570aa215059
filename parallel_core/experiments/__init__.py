"""The book's experiments. Each is a function of a backend that returns a frozen result; none names a framework."""

from parallel_core.experiments.allreduce import run as run_allreduce
from parallel_core.experiments.asynchronous import run as run_async
from parallel_core.experiments.batch_scaling import run as run_batch_scaling
from parallel_core.experiments.building_blocks import run as run_building_blocks
from parallel_core.experiments.catalogue import EXPERIMENTS, Experiment
from parallel_core.experiments.data_parallel import run as run_data_parallel
from parallel_core.experiments.learning_rates import run as run_learning_rates
from parallel_core.experiments.overlap import run as run_overlap
from parallel_core.experiments.parallel import run as run_parallel

__all__ = [
    "EXPERIMENTS",
    "Experiment",
    "run_allreduce",
    "run_async",
    "run_batch_scaling",
    "run_building_blocks",
    "run_data_parallel",
    "run_learning_rates",
    "run_overlap",
    "run_parallel",
]
