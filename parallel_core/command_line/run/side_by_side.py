"""`run EXPERIMENT --backend mxnet,torch`: the same work on several backends, whose processes take
turns.
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

import backends
from parallel_core.command_line import compare, options
from parallel_core.comparison.analysis import analyse
from parallel_core.comparison.cells import OWN_ENGINE, with_engines_that_ran
from parallel_core.comparison.plan import Plan
from parallel_core.experiments import Experiment
from parallel_core.system import files
from parallel_core.system.errors import RequestError
from parallel_core.system.formatting import listed
from parallel_core.terminal.comparison import show_comparison
from parallel_core.terminal.console import terminal_console
from parallel_core.terminal.layout import show_sentence, show_sentences
from parallel_core.terminal.result import show_change

SECONDS = 30.0
"""The seconds for each backend, including the starts of its processes."""
OF_ALL = (
    "backend",
    "engine",
    "devices",
    "device_kind",
    "threads",
    "interpreters",
    "json_path",
    "details",
)
"""The parameters of options that a comparison has too."""
OF_ONE = ("_path", "variants", "workers", "guess", "checkpoint", "checkpoint_steps")
"""The endings of parameters of options that are only for a single backend."""


def run_side_by_side(experiment: Experiment, ctx: click.Context, given: Mapping[str, Any]) -> None:
    """Run an experiment on several backends, and show their results side by side with one answer.

    `given` are the options as they are written, by parameter. Sizes that are not given are chosen
    to fit the time, and are the same for all backends. By default each backend runs on its default
    engine. Raises RequestError for options that are only for a single backend, and MeasurementError
    if nothing could be measured.
    """
    values = ctx.params
    names = options.names("backend", backends.names).convert(values["backend"], None, ctx)
    compare.refuse_unknown("device kind", values["device_kind"], compare.DEVICE_KINDS)
    compare.refuse_unknown("engine", values["engine"] or compare.ENGINES[0], compare.ENGINES)
    devices = values["devices"] or experiment.devices
    if not isinstance(devices, int):
        raise RequestError("--devices needs a number if several backends are named")
    plan = Plan(
        experiments=(experiment,),
        backends=names,
        engines=(values["engine"] or OWN_ENGINE,),
        interpreters=compare.choose_interpreters(names, values["interpreters"]),
        rounds=compare.ROUNDS,
        devices=devices,
        device_kind=values["device_kind"],
        threads=values["threads"],
        seconds=SECONDS * len(names),
        sizes={experiment.name: _sizes(ctx, given)},
    )
    files.check_outputs(values["json_path"])
    console = options.console_beside(values["json_path"])
    with tempfile.TemporaryDirectory(prefix="parallel-core-") as folder:
        comparison = compare.run_plan(
            plan, Path(folder), terminal_console(stderr=True), stays=False
        )
    comparison = with_engines_that_ran(comparison)
    analysis = analyse(comparison)
    files.write_json(values["json_path"], comparison.as_json())
    results_of_cells = [results for results in comparison.cells if results.results]
    if len({results.cell.engine for results in results_of_cells}) > 1:
        titles = listed([results.title for results in results_of_cells])
        show_sentence(
            f"{titles}: each as it runs by itself (--engine chooses one engine for all)", console
        )
    if analysis.side_by_side is not None:
        show_sentences(analysis.side_by_side.sentences, console)
    show_comparison(analysis, console)
    if analysis.side_by_side is not None:
        show_change(analysis.side_by_side, console)
    compare.refuse_unmeasured(analysis)


def _sizes(ctx: click.Context, given: Mapping[str, Any]) -> dict[str, str]:
    """Return the given options of the experiment by name, as they are written.

    Raises RequestError for an option that is only for a single backend.
    """
    option_of_parameter = {
        parameter.name: parameter.opts[0].removeprefix("--") for parameter in ctx.command.params
    }
    sizes: dict[str, str] = {}
    for name, value in given.items():
        if name in OF_ALL:
            continue
        option = option_of_parameter[name]
        if isinstance(value, bool) or name.endswith(OF_ONE):
            raise RequestError(
                f"--{option} is for one backend at a time: leave it out, or name one backend"
            )
        sizes[option] = value if isinstance(value, str) else ",".join(value)
    return sizes
