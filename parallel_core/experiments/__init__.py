"""The book's experiments. Each is a function of a backend that returns a frozen result; none names a framework."""

from parallel_core.experiments.allreduce import run as run_allreduce
from parallel_core.experiments.asynchronous import run as run_async
from parallel_core.experiments.barriers import run as run_barriers
from parallel_core.experiments.catalogue import EXPERIMENTS, Experiment
from parallel_core.experiments.cost_model import run as run_cost_model
from parallel_core.experiments.data_parallel import run as run_data_parallel
from parallel_core.experiments.dependencies import run as run_dependencies
from parallel_core.experiments.eager_cpu import run as run_eager_cpu
from parallel_core.experiments.graph import run as run_graph
from parallel_core.experiments.overlap import run as run_overlap
from parallel_core.experiments.parallel import run as run_parallel

__all__ = [
    "EXPERIMENTS",
    "Experiment",
    "run_allreduce",
    "run_async",
    "run_barriers",
    "run_cost_model",
    "run_data_parallel",
    "run_dependencies",
    "run_eager_cpu",
    "run_graph",
    "run_overlap",
    "run_parallel",
]
