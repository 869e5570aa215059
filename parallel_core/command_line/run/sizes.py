"""The sizes of a run: those that are given, or kept for this machine, or chosen now and kept."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

import click

from backends import Backend, ComputationError
from parallel_core.errors import RequestError
from parallel_core.experiments import Experiment
from parallel_core.experiments.runner.declaration import parameters_of
from parallel_core.experiments.runner.kept_sizes import KeptSizes, SpoiltSizesError, keep_sizes, kept_sizes, place_of
from parallel_core.measurement.result import Result

__all__ = ["WORK", "Work", "about_kept", "keep_chosen", "run_with_sizes", "with_kept", "work_option", "work_wanted"]

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


def run_with_sizes(
    ctx: click.Context,
    experiment: Experiment,
    backend: Backend,
    own: Mapping[str, Any],
    work: Work,
    run: Callable[[Mapping[str, Any]], Result],
) -> tuple[Result, KeptSizes | None]:
    """Run with the options' values and the sizes kept for this machine, if they are wanted and can be had.

    Return the result and the kept sizes that it is of, None if there are none. Sizes that were spoilt where they are
    kept, or that the run cannot do, are not taken, and a line says so: new ones are chosen, and kept.
    """
    kept = None
    given = own
    try:
        if kept := work_wanted(experiment, backend, own, work):
            given = with_kept(ctx, experiment, own, kept)
    except SpoiltSizesError as error:
        kept = None
        _tell_of_spoilt(error)
    try:
        result = run(given)
    except (RequestError, ComputationError, MemoryError) as error:
        if kept is None:
            raise
        # If the sizes were not the reason, this fails alike.
        result, kept = run(own), None
        _tell_of_spoilt(error)
    if kept is None:
        keep_chosen(experiment, backend, own, work, result)
    return result, kept


def _tell_of_spoilt(error: Exception) -> None:
    click.echo(f"parallel-core: no sizes that were kept for this machine are taken, but new ones: {error}", err=True)


def work_wanted(experiment: Experiment, backend: Backend, own: Mapping[str, Any], work: Work) -> KeptSizes | None:
    """Return the sizes kept for this machine; None if some are given, new ones are wanted, or none are kept.

    Raises SpoiltSizesError for sizes that a run did not keep.
    """
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

    Raises SpoiltSizesError for a size that the option does not take.
    """
    options = _options_of(experiment)
    known = {option.name: option for option in ctx.command.params}
    try:
        read = {
            options[name]: known[options[name]].type_cast_value(ctx, _written(value))
            for name, value in kept.values.items()
        }
    except click.BadParameter as error:
        raise SpoiltSizesError(error.message) from error
    return {**own, **read}


def _options_of(experiment: Experiment) -> dict[str, str]:
    """Return the options of the sizes that a run chooses, by the names of the parameters."""
    return {one.name: one.option for one in parameters_of(experiment) if one.name in experiment.calibrated}


def _written(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
