"""`run EXPERIMENT --backend mxnet,torch`: the same work on several backends, in processes that take
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
from parallel_core.terminal.layout import show_sentence
from parallel_core.terminal.result import show_answer

SECONDS = 30.0
"""For each backend, its processes' starts included."""
OF_ALL = ("backend", "engine", "devices", "device_kind", "threads", "interpreters", "json_path")
"""The options that a comparison has too, by their parameters."""
OF_ONE = ("_path", "variants", "workers", "guess", "checkpoint", "checkpoint_steps")
"""Ends of the parameters of those that it does not have."""


def run_side_by_side(experiment: Experiment, ctx: click.Context, given: Mapping[str, Any]) -> None:
    """Run an experiment on the backends that are named, and show their results beside each other,
    with one answer.

    `given` are the options as they are written, by their parameters. Sizes that are not given are
    chosen for the time, the same for all. Unless an engine is given, each backend runs on the one
    that it takes by itself. Raises RequestError for what only one backend can do, and
    MeasurementError if nothing could be measured.
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
    engines = {
        one.cell.backend: one.cell.engine
        for one in comparison.cells
        if one.cell.engine != OWN_ENGINE
    }
    if len(set(engines.values())) > 1:
        chosen = listed([f"{name} on its {engine} engine" for name, engine in engines.items()])
        show_sentence(
            f"{chosen}: each on the one that it takes by itself (--engine chooses one for all)",
            console,
        )
    show_comparison(analysis, console)
    if analysis.side_by_side is not None:
        show_answer(analysis.side_by_side, console)
    compare.refuse_unmeasured(analysis)


def _sizes(ctx: click.Context, given: Mapping[str, Any]) -> dict[str, str]:
    """Return the experiment's own options that are given, as they are written."""
    sizes: dict[str, str] = {}
    for name, value in given.items():
        if name in OF_ALL:
            continue
        (option,) = (one.opts[0] for one in ctx.command.params if one.name == name)
        if isinstance(value, bool) or name.endswith(OF_ONE):
            raise RequestError(
                f"{option} is for one backend at a time: leave it out, or name one backend"
            )
        sizes[option.removeprefix("--")] = value if isinstance(value, str) else ",".join(value)
    return sizes
