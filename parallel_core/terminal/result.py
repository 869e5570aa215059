"""Print a result for people: its timings, its metrics and checks, and its answer."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from parallel_core.experiments import EXPERIMENTS
from parallel_core.measurement.confidence_intervals import Interval
from parallel_core.measurement.fresh_process import run_arguments
from parallel_core.measurement.result import WHAT_WOULD_CHANGE_IT, Answer, Result
from parallel_core.measurement.sweep import Curves, labelled, write_point
from parallel_core.system import formatting
from parallel_core.system.formatting import figure, percent, seconds
from parallel_core.terminal.console import ASIDE, BAD, DOUBTFUL
from parallel_core.terminal.layout import show_sentence, show_sentences, show_table, table_of

BOUNDS = {"share_of_copy_bound": "the plain copies'", "share_of_stream_bound": "the TCP stream's"}
"""The bounds of which series are shares, in words, by the name of the figure."""


def show(result: Result, console: Console, answered: bool = True) -> None:
    """Print a result: its timings, metrics and checks, its problems, and its answer.

    The answer is left out unless `answered`: then the caller calls `show_answer` later.
    """
    backend = result.backend
    show_sentence(f"\n{result.experiment} on {_backend_in_words(backend)}", console, "bold")
    values = [f"{name} = {value}" for name, value in result.parameters.items() if value is not None]
    parameters = ", ".join(values)
    data = "" if result.data is None else f"data: {result.data}"
    asides = (parameters, formatting.kernels_in_words(backend), data)
    show_sentences(filter(None, asides), console, ASIDE)
    for table in _tables(result):
        show_table(table, console)
    if result.answer is None:
        show_sentence(result.explanation, console, "bold")
    # The first part names the scheduler; the others say what is unusual about the devices.
    _scheduler, *unusual = backend["scheduler"].split("; ")
    show_sentences((*filter(None, unusual), *result.notes), console, bullet="· ")
    if result.machine_watch is not None:
        cpus = [device for device in backend["devices"] if device.startswith("cpu")]
        workers = len(cpus) * backend.get("workers_per_device", 1)
        threads = workers * backend["threads_per_device"]
        show_sentences(result.machine_watch.in_words(threads), console, DOUBTFUL, bullet="· ")
    show_sentences((f"INVALID: {problem}" for problem in result.problems), console, f"bold {BAD}")
    if result.answer is not None and answered:
        show_answer(result.answer, console)


def _backend_in_words(backend: Mapping[str, Any]) -> str:
    """Write a result's framework, engine, devices, threads, workers and processes."""
    threads = backend["threads_per_device"]
    workers = backend.get("workers_per_device", 1)
    noun = "thread" if threads == 1 else "threads"
    framework = f"{backend['name']} {backend['version']}"
    devices = ", ".join(backend["devices"])
    words = f"{framework}, {formatting.engine_in_words(backend)}, {devices}, {threads} {noun} each"
    if workers != 1:
        words += f" for each of {workers} workers"
    if backend.get("processes"):
        processes = f"{backend['processes']} processes joined by {backend['transport']}"
        words += f", in each of {processes}"
    return words


def show_answer(answer: Answer, console: Console, by_trace: str = "") -> None:
    """Print an answer under its heading, with what a trace adds, and what would change it."""
    console.print("\nAnswer", style="bold")
    would_change = f"{WHAT_WOULD_CHANGE_IT} {answer.would_change}"
    sentences = (*answer.sentences, by_trace, would_change)
    show_sentences(filter(None, sentences), console)


def show_again(result: Result, given: Mapping[str, Any], console: Console) -> None:
    """Print the command that repeats a run with the sizes that it chose, if it chose any.

    `given` are the options that the user gave, by name.
    """
    sizes = EXPERIMENTS[result.experiment].sizes_chosen_in(result, given)
    if not sizes:
        return
    command = f"parallel-core run {run_arguments(result.experiment, {**given, **sizes})}"
    control = "--engine sync, or " if result.backend["engine"] == "async" else ""
    # The command is one line, however long, so that it can be copied.
    console.print(Text(f"\nAgain: {command}"), soft_wrap=True)
    show_sentence(f"The same work elsewhere: add {control}another --backend.", console)


def _tables(result: Result) -> Iterator[Table]:
    """Yield the tables of a result: of its curves, the times of its cases, and its metrics."""
    curves = EXPERIMENTS[result.experiment].curves
    if curves is not None and curves.over not in result.series:
        curves = None
    if curves is not None and curves.quantity == "algbw_gb_per_s":
        yield bandwidths(result)
    elif curves is not None:
        yield _curves(result, curves)
    if curves is None or not curves.in_place_of_times:
        yield _timings(result)
    yield _numbers(result)


def _timings(result: Result) -> Table:
    """Return the table of the times of all cases."""
    table = table_of("", "case", "control returned after", "done after", "spread")
    for case in result.cases:
        spread = f"± {percent(case.spread)}" if len(case.seconds) > 1 else "once"
        table.add_row(case.name, seconds(case.dispatch_median), seconds(case.median), spread)
    return table


def _numbers(result: Result) -> Table:
    """Return the table of a result's metrics and checks."""
    experiment = EXPERIMENTS[result.experiment]
    table = table_of("", "metric", "value")
    for name, value in result.metrics.items():
        low, high = result.metric_intervals.get(name, (value, value))
        metric = experiment.metric_named(name)
        table.add_row(name, metric.write(Interval(value, low, high), result))
    table.add_section()
    for name, value in result.checks.items():
        table.add_row(f"{name} (check)", f"{value:.1e}")
    return table


def _curves(result: Result, curves: Curves) -> Table:
    """Return the table of a result's curves, with a row for each point."""
    values_by_label = labelled(result.series, curves.quantity)
    labels = (label or curves.y_title for label in values_by_label)
    table = table_of(curves.y_title, curves.x_title, *labels)
    table.columns[0].justify = "right"
    for row, point in enumerate(result.series[curves.over]):
        cells = [
            formatting.quantity(curves.quantity, values[row]) for values in values_by_label.values()
        ]
        table.add_row(write_point(point, curves.over), *cells)
    return table


def bandwidths(result: Result) -> Table:
    """Return the table of algorithms' bandwidths over the size, with their shares of a bound.

    The fastest algorithm of each size is in bold.
    """
    speeds = labelled(result.series, "algbw_gb_per_s")
    bound, shares = _bound_and_shares(result)
    title = f"GB/s of each device's vector, and the share of {bound} speed"
    table = table_of(title, "size", *speeds)
    table.columns[0].justify = "right"
    for row, size in enumerate(result.series["bytes"]):
        fastest = max(shares, key=lambda name: speeds[name][row])
        cells = []
        for name, values in speeds.items():
            cell = _speed(values[row])
            if name in shares:
                cell += f" {percent(shares[name][row]):>5}"
            cells.append(Text(cell, style="bold" if name == fastest else ""))
        table.add_row(formatting.write_size(int(size)), *cells)
    return table


def _bound_and_shares(result: Result) -> tuple[str, Mapping[str, Sequence[float]]]:
    """Return the bound of a result's bandwidths in words, and each algorithm's shares of it."""
    for name, words in BOUNDS.items():
        shares = labelled(result.series, name)
        if shares:
            return words, shares
    raise ValueError("a result of bandwidths has shares of a bound")


def _speed(gigabytes: float) -> str:
    """Write GB/s in five characters, so that tables fit a terminal; very low speeds take more."""
    if gigabytes < 0.001:
        return figure(gigabytes)
    whole_digits = len(f"{gigabytes:.0f}")
    decimals = max(0, 4 - whole_digits)
    return f"{gigabytes:.{decimals}f}"
