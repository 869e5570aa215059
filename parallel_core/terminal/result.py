"""What a person reads of a result: its timings, its metrics and checks, and what they answer."""

from collections.abc import Iterator, Mapping
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
"""What the shares of a series are shares of."""


def show(result: Result, console: Console, answered: bool = True) -> None:
    """Print a result: its timings, metrics and checks, why it is invalid, if it is, and what it
    answers.

    If it is not to be `answered` here, `show_answer` is called when all else was said.
    """
    backend = result.backend
    threads = backend["threads_per_device"]
    processes = backend.get("processes")
    workers = backend.get("workers_per_device", 1)
    joined = ""
    if processes:
        joined = f", in each of {processes} processes joined by {backend['transport']}"
    show_sentence(
        f"\n{result.experiment} on {backend['name']} {backend['version']}, "
        f"{formatting.engine_in_words(backend)}, {', '.join(backend['devices'])}, "
        f"{threads} {'thread' if threads == 1 else 'threads'} each"
        f"{'' if workers == 1 else f' for each of {workers} workers'}"
        f"{joined}",
        console,
        "bold",
    )
    parameters = ", ".join(
        f"{name} = {value}" for name, value in result.parameters.items() if value is not None
    )
    data = "" if result.data is None else f"data: {result.data}"
    show_sentences(
        filter(None, (parameters, formatting.kernels_in_words(backend), data)), console, ASIDE
    )
    for table in _tables(result):
        show_table(table, console)
    if result.answer is None:
        show_sentence(result.explanation, console, "bold")
    # The first sentence says who schedules; the other ones, what is unusual about the devices.
    show_sentences(
        (*filter(None, backend["scheduler"].split("; ")[1:]), *result.notes), console, bullet="· "
    )
    wanted = threads * workers * sum(device.startswith("cpu") for device in backend["devices"])
    if result.machine_watch is not None:
        show_sentences(result.machine_watch.in_words(wanted), console, DOUBTFUL, bullet="· ")
    show_sentences((f"INVALID: {problem}" for problem in result.problems), console, f"bold {BAD}")
    if result.answer is not None and answered:
        show_answer(result.answer, console)


def show_answer(answer: Answer, console: Console, by_trace: str = "") -> None:
    """Print an answer under its heading, what a trace adds to it, and what would change it."""
    console.print("\nAnswer", style="bold")
    said = (*answer.sentences, by_trace, f"{WHAT_WOULD_CHANGE_IT} {answer.would_change}")
    show_sentences(filter(None, said), console)


def show_again(result: Result, given: Mapping[str, Any], console: Console) -> None:
    """Print the command that repeats a run with the sizes that it chose; nothing if it chose none.

    `given` are the options that it was given, by their names.
    """
    sizes = EXPERIMENTS[result.experiment].sizes_chosen_in(result, given)
    if not sizes:
        return
    command = f"parallel-core run {run_arguments(result.experiment, {**given, **sizes})}"
    control = "--engine sync, or " if result.backend["engine"] == "async" else ""
    # In one line, however long, so that it can be copied.
    console.print(Text(f"\nAgain: {command}"), soft_wrap=True)
    show_sentence(f"The same work elsewhere: add {control}another --backend.", console)


def _tables(result: Result) -> Iterator[Table]:
    curves = EXPERIMENTS[result.experiment].curves
    if curves is not None and curves.over not in result.series:
        curves = None
    if curves is not None:
        yield bandwidths(result) if curves.quantity == "algbw_gb_per_s" else _curves(result, curves)
    if curves is None or not curves.in_place_of_times:
        yield _timings(result)
    yield _numbers(result)


def _timings(result: Result) -> Table:
    table = table_of("", "case", "control returned after", "done after", "spread")
    for case in result.cases:
        spread = f"± {percent(case.spread)}" if len(case.seconds) > 1 else "once"
        table.add_row(case.name, seconds(case.dispatch_median), seconds(case.median), spread)
    return table


def _numbers(result: Result) -> Table:
    table = table_of("", "metric", "value")
    for name, value in result.metrics.items():
        interval = Interval(value, *result.metric_intervals.get(name, (value, value)))
        table.add_row(
            name, EXPERIMENTS[result.experiment].metric_named(name).write(interval, result)
        )
    table.add_section()
    for name, value in result.checks.items():
        table.add_row(f"{name} (check)", f"{value:.1e}")
    return table


def _curves(result: Result, curves: Curves) -> Table:
    """Return the table of a result's curves."""
    values_by_label = labelled(result.series, curves.quantity)
    labels = (label or curves.y_title for label in values_by_label)
    table = table_of(curves.y_title, curves.x_title, *labels)
    table.columns[0].justify = "right"
    for place, value in enumerate(result.series[curves.over]):
        table.add_row(
            write_point(value, curves.over),
            *(
                formatting.quantity(curves.quantity, values[place])
                for values in values_by_label.values()
            ),
        )
    return table


def bandwidths(result: Result) -> Table:
    """Return the table of algorithm bandwidths, with their shares of the bound if the result has
    them.

    The fastest algorithm of each size is in bold.
    """
    speeds = labelled(result.series, "algbw_gb_per_s")
    bound, shares = next(
        (words, some) for name, words in BOUNDS.items() if (some := labelled(result.series, name))
    )
    title = f"GB/s of each device's vector, and the share of {bound} speed"
    table = table_of(title, "size", *speeds)
    table.columns[0].justify = "right"
    for row, size in enumerate(result.series["bytes"]):
        fastest = max(shares, key=lambda name: speeds[name][row])
        cells = []
        for name, values in speeds.items():
            share = f" {percent(shares[name][row]):>5}" if name in shares else ""
            cells.append(Text(_speed(values[row]) + share, style="bold" if name == fastest else ""))
        table.add_row(formatting.write_size(int(size)), *cells)
    return table


def _speed(gigabytes: float) -> str:
    """Write GB/s in five characters, so that a table of them fits into a terminal; very low ones
    take more.
    """
    if gigabytes < 0.001:
        return figure(gigabytes)
    return f"{gigabytes:.{max(0, 4 - len(f'{gigabytes:.0f}'))}f}"
