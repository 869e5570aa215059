"""`run EXPERIMENT --backend mxnet,torch`: the same work on several backends, whose processes take
turns.
"""

import tempfile
from pathlib import Path

import backends
from backends.devices import parse_devices
from parallel_core.command_line import compare, options
from parallel_core.compare.analysis import analyse
from parallel_core.compare.plan import Plan
from parallel_core.compare.results import OWN_ENGINE, with_engines_that_ran
from parallel_core.experiments import EXPERIMENTS
from parallel_core.measurement.request import Request
from parallel_core.run.options import options_for_one
from parallel_core.system import files
from parallel_core.system.errors import RequestError
from parallel_core.system.formatting import listed
from parallel_core.terminal.comparison import show_comparison
from parallel_core.terminal.console import terminal_console
from parallel_core.terminal.layout import show_sentence, show_sentences
from parallel_core.terminal.result import show_change

SECONDS = 30.0
"""The seconds for each backend, including the starts of its processes."""


def run_side_by_side(request: Request, interpreters: tuple[tuple[str, str], ...]) -> None:
    """Run an experiment on several backends, and show their results side by side with one answer.

    Sizes that are not given are chosen to fit the time, and are the same for all backends. By
    default each backend runs on its default engine. Raises RequestError for options that are only
    for a single backend, and MeasurementError if nothing could be measured.
    """
    plan = _plan_of(request, interpreters)
    files.check_outputs(request.files.json)
    console = options.console_beside(request.files.json)
    with tempfile.TemporaryDirectory(prefix="parallel-core-") as folder:
        comparison = compare.run_plan(
            plan, Path(folder), terminal_console(stderr=True), stays=False
        )
    comparison = with_engines_that_ran(comparison)
    analysis = analyse(comparison)
    files.write_json(request.files.json, comparison.as_json())
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


def _plan_of(request: Request, interpreters: tuple[tuple[str, str], ...]) -> Plan:
    """Plan the comparison of the backends that a request names."""
    work = request.work
    names = options.names("backend", backends.names).convert(work.backend, None, None)
    for option in options_for_one(request):
        raise RequestError(
            f"{option} is for one backend at a time: leave it out, or name one backend"
        )
    compare.refuse_unknown("device kind", work.device_kind, compare.DEVICE_KINDS)
    compare.refuse_unknown("engine", work.engine or compare.ENGINES[0], compare.ENGINES)
    experiment = EXPERIMENTS[work.experiment]
    devices = parse_devices(str(work.devices or experiment.devices))
    if not isinstance(devices, int):
        raise RequestError("--devices needs a number if several backends are named")
    sizes = dict(work.parameters)
    if work.data_dir is not None:
        sizes["data_dir"] = str(work.data_dir)
    return Plan(
        experiments=(experiment,),
        backends=names,
        engines=(work.engine or OWN_ENGINE,),
        interpreters=compare.choose_interpreters(names, interpreters),
        rounds=compare.ROUNDS,
        devices=devices,
        device_kind=work.device_kind,
        threads=work.threads,
        seconds=SECONDS * len(names),
        sizes={experiment.name: sizes},
    )
