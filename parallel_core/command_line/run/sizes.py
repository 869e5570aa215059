"""The sizes of a run: those that are given, or kept for this machine, or chosen now and kept."""

from collections.abc import Mapping
from typing import Any, Literal

import click

from backends import Backend
from parallel_core.experiments import Experiment
from parallel_core.experiments.experiment import parameters_of
from parallel_core.experiments.kept_sizes import KeptSizes, keep_sizes, kept_sizes, place_of
from parallel_core.measurement.result import Result

__all__ = ["WORK", "Work", "about_kept", "keep_chosen", "with_kept", "work_option", "work_wanted"]

Work = Literal["kept", "new", "own"]
WORK = "work"


work_option = click.option(
    f"--{WORK}",
    type=click.Choice(["kept", "new", "own"]),
    metavar="kept|new",
    default="kept",
    show_default=True,
    help="Sizes that are not given: those kept for this machine, so that all frameworks do the same, or new ones.",
)
"""Where sizes come from; `own`, for comparisons, neither takes nor keeps any."""


def work_wanted(experiment: Experiment, backend: Backend, own: Mapping[str, Any], work: Work) -> KeptSizes | None:
    """Return the sizes kept for this machine; None if some are given, new ones are wanted, or none are kept."""
    options = _options_of(experiment)
    if work != "kept" or not options or any(own[option] is not None for option in options.values()):
        return None
    return kept_sizes(experiment.name, place_of(backend), tuple(options))


def keep_chosen(experiment: Experiment, backend: Backend, own: Mapping[str, Any], work: Work, result: Result) -> None:
    """Keep the sizes that a valid run chose on a machine that others left alone."""
    options = _options_of(experiment)
    given = any(own[option] is not None for option in options.values())
    chosen = {name: result.parameters[name] for name in options if name in result.parameters}
    disturbed = result.machine_watch is not None and not result.machine_watch.allows_verdict
    if work == "own" or given or result.problems or disturbed or not options or len(chosen) < len(options):
        return
    keep_sizes(experiment.name, place_of(backend), chosen, f"{backend.name} {backend.engine}")


def about_kept(kept: KeptSizes) -> str:
    """Say which sizes were taken, and how others are had."""
    sizes = ", ".join(f"{name} {_written(value)}" for name, value in kept.values.items())
    return f"{sizes}: kept for this machine, as chosen on {kept.chosen_on}, {kept.day}; --{WORK} new chooses others"


def with_kept(ctx: click.Context, experiment: Experiment, own: Mapping[str, Any], kept: KeptSizes) -> dict[str, Any]:
    """Return the options' values with the sizes that are kept, read as if they had been given.

    Raises click.BadParameter for a size that the option does not take.
    """
    options = _options_of(experiment)
    known = {option.name: option for option in ctx.command.params}
    read = {
        options[name]: known[options[name]].type_cast_value(ctx, _written(value)) for name, value in kept.values.items()
    }
    return {**own, **read}


def _options_of(experiment: Experiment) -> dict[str, str]:
    """Return the options of the sizes that a run chooses, by the names of the parameters."""
    return {one.name: one.option for one in parameters_of(experiment) if one.name in experiment.calibrated}


def _written(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
