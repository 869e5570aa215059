"""Print a result for people: its question and answer, a table, and what to do next."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from parallel_core.experiments import EXPERIMENTS
from parallel_core.measurement.confidence_intervals import Interval
from parallel_core.measurement.result import WHAT_WOULD_CHANGE_IT, Answer, Result
from parallel_core.measurement.sweep import Curves, labelled, write_point
from parallel_core.system import formatting
from parallel_core.system.formatting import figure, percent, seconds
from parallel_core.terminal.console import ASIDE, BAD, DOUBTFUL
from parallel_core.terminal.layout import (
    UNLIMITED,
    count_rest,
    show_sentence,
    show_sentences,
    show_table,
    table_of,
)

MOST_SENTENCES = 3
"""The most sentences of an answer without details."""
MOST_ROWS = 4
"""The most rows of a table without details."""
LEAST_PERCENT = 0.001
"""A smaller share is not written in digits."""
BOUNDS = {"share_of_copy_bound": "the plain copies'", "share_of_stream_bound": "the TCP stream's"}
"""The bounds of which series are shares, in words, by the name of the figure."""


def show(
    result: Result,
    console: Console,
    *,
    by_trace: str = "",
    again: str = "",
    with_details: bool = False,
) -> None:
    """Print a result: its question and answer, one table, warnings, and what to do next.

    That fits a screen. `by_trace` is what a trace adds to the answer, and `again` the command that
    repeats the run. With details there are all sentences and tables, and what the run was made of.
    """
    backend = result.backend
    show_sentence(EXPERIMENTS[result.experiment].question, console, "bold")
    show_sentence(_backend_in_words(backend, with_details), console, ASIDE)
    console.print()
    _show_sentences_of_answer(result, by_trace, console, with_details)
    if with_details:
        _scheduler, *unusual = backend["scheduler"].split("; ")
        asides = (formatting.kernels_in_words(backend), *unusual)
        show_sentences(filter(None, asides), console, ASIDE)
        for table in _tables(result):
            show_table(table, console)
    else:
        show_table(next(_tables(result, MOST_ROWS)), console)
    show_sentence(_parameters(result), console, ASIDE)
    show_sentences(map(str, result.notes), console, bullet="· ")
    show_sentences(_about_load(result), console, DOUBTFUL, bullet="· ")
    show_sentences((f"INVALID: {problem}" for problem in result.problems), console, f"bold {BAD}")
    if result.answer is not None:
        show_change(result.answer, console)
    if again:
        # The command is one line, however long, so that it can be copied.
        console.print(Text(f"Again: {again}"), soft_wrap=True)
    if not with_details:
        show_sentence("All figures: --details", console, ASIDE)


def _show_sentences_of_answer(
    result: Result, by_trace: str, console: Console, with_details: bool
) -> None:
    """Print an answer's first sentences, or all with details, and what a trace adds."""
    sentences: Sequence[str] = (result.explanation,)
    if result.answer is not None:
        sentences = result.answer.sentences
    if not with_details:
        sentences = sentences[:MOST_SENTENCES]
    show_sentences(filter(None, (*sentences, by_trace)), console)


def show_change(answer: Answer, console: Console) -> None:
    """Print what would change an answer."""
    if answer.would_change:
        show_sentence(f"{WHAT_WOULD_CHANGE_IT} {answer.would_change}", console)


def _backend_in_words(backend: Mapping[str, Any], with_details: bool) -> str:
    """Write a result's framework and queues, devices and processes; with details, threads too."""
    devices = backend["devices"]
    words = f"{formatting.framework_in_words(backend)}, {', '.join(devices)}"
    if with_details:
        workers = backend.get("workers_per_device", 1)
        words += f", {backend['threads_per_device']} threads each"
        if workers != 1:
            words += f" for each of {workers} workers"
    if backend.get("processes"):
        words += f", in each of {backend['processes']} processes joined by {backend['transport']}"
    return words


def _parameters(result: Result) -> str:
    """Write a result's parameters, how near its numbers are to NumPy's, and its data."""
    words = [f"{name} = {value}" for name, value in result.parameters.items() if value is not None]
    error = result.checks.get("max_relative_error")
    if error is not None:
        words.append(f"within {error:.0e} of NumPy's numbers" if error else "equal to NumPy's")
    if result.data is not None:
        words.append(f"data: {result.data}")
    return ", ".join(words)


def _about_load(result: Result) -> Sequence[str]:
    """Return sentences on what other programs took, unless the answer says it."""
    if result.machine_watch is None or result.disturbances:
        return ()
    backend = result.backend
    cpus = [device for device in backend["devices"] if device.startswith("cpu")]
    workers = len(cpus) * backend.get("workers_per_device", 1)
    return result.machine_watch.in_words(workers * backend["threads_per_device"])


def _tables(result: Result, most_rows: int = UNLIMITED) -> Iterator[Table]:
    """Yield the tables of a result: of its curves, the times of its cases, and its metrics.

    Those of curves and times have `most_rows` rows, at the most.
    """
    curves = EXPERIMENTS[result.experiment].curves
    if curves is not None and curves.over not in result.series:
        curves = None
    if curves is not None and curves.quantity == "algbw_gb_per_s":
        yield bandwidths(result, most_rows)
    elif curves is not None:
        yield _curves(result, curves, most_rows)
    if curves is None or not curves.in_place_of_times:
        yield _timings(result, most_rows)
    yield _numbers(result)


def _chosen_rows(count: int, most: int) -> Sequence[int]:
    """Return the rows to show of a sweep: all, or some from the first to the last."""
    if count <= most:
        return range(count)
    return [round(number * (count - 1) / (most - 1)) for number in range(most)]


def _timings(result: Result, most_rows: int) -> Table:
    """Return the table of the times of cases: the share after which Python continues, and all."""
    table = table_of("", "", "Python continues", "all done", "spread")
    experiment = EXPERIMENTS[result.experiment]
    shown = {experiment.case, experiment.queued_case}
    for case in result.cases:
        if case.name in shown:
            shown |= set(case.parts)
    important_first = sorted(result.cases, key=lambda case: case.name not in shown)
    names = [case.name for case in important_first[:most_rows]]
    for case in result.cases:
        if case.name not in names:
            continue
        spread = f"± {percent(case.spread)}" if len(case.seconds) > 1 else "once"
        share = case.dispatch_median / case.median
        written = percent(share) if share >= LEAST_PERCENT else f"< {percent(LEAST_PERCENT)}"
        table.add_row(case.name, written, seconds(case.median), spread)
    count_rest(table, len(result.cases))
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


def _curves(result: Result, curves: Curves, most_rows: int) -> Table:
    """Return the table of a result's curves, with a row for each point that is shown."""
    values_by_label = labelled(result.series, curves.quantity)
    labels = (label or curves.y_title for label in values_by_label)
    table = table_of(curves.y_title, curves.x_title, *labels)
    table.columns[0].justify = "right"
    points = result.series[curves.over]
    for row in _chosen_rows(len(points), most_rows):
        cells = [
            formatting.quantity(curves.quantity, values[row]) for values in values_by_label.values()
        ]
        table.add_row(write_point(points[row], curves.over), *cells)
    return table


def bandwidths(result: Result, most_rows: int = UNLIMITED) -> Table:
    """Return the table of algorithms' bandwidths over the size, with their shares of a bound.

    The fastest algorithm of each size is in bold.
    """
    speeds = labelled(result.series, "algbw_gb_per_s")
    bound, shares = _bound_and_shares(result)
    title = f"GB/s of each device's vector, and the share of {bound} speed"
    table = table_of(title, "size", *speeds)
    table.columns[0].justify = "right"
    sizes = result.series["bytes"]
    for row in _chosen_rows(len(sizes), most_rows):
        fastest = max(shares, key=lambda name: speeds[name][row])
        cells = []
        for name, values in speeds.items():
            cell = _speed(values[row])
            if name in shares:
                cell += f" {percent(shares[name][row]):>5}"
            cells.append(Text(cell, style="bold" if name == fastest else ""))
        table.add_row(formatting.write_size(int(sizes[row])), *cells)
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
