"""The experiments by the book's chapter: what each asks, and how a comparison runs it."""

from collections.abc import Mapping
from types import MappingProxyType

from parallel_core.experiments import asynchronous_computation, automatic_parallelism, training_on_multiple_gpus
from parallel_core.experiments.experiment import Experiment, Mode

__all__ = ["EXPERIMENTS", "Experiment", "Mode"]

CHAPTERS = (asynchronous_computation, automatic_parallelism, training_on_multiple_gpus)

EXPERIMENTS: Mapping[str, Experiment] = MappingProxyType(
    {experiment.name: experiment for chapter in CHAPTERS for experiment in chapter.EXPERIMENTS}
)
"""All experiments by name, in the order of the book's chapters."""
