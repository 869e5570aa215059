"""What a person reads of a result: its timings, its metrics and checks, and what they answer."""

from collections.abc import Iterator

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from parallel_core.experiments import EXPERIMENTS
from parallel_core.measurement.answer import WHAT_WOULD_CHANGE_IT, Answer
from parallel_core.measurement.confidence_intervals import Interval
from parallel_core.measurement.result import Result
from parallel_core.system.formatting import engine_in_words, kernels_in_words, percent, seconds
from parallel_core.terminal.console import ASIDE, BAD, DOUBTFUL
from parallel_core.terminal.layout import show_sentence, show_table
from parallel_core.terminal.sweep import bandwidths, curves_table

__all__ = ["show", "show_answer"]


def show(result: Result, console: Console, answered: bool = True) -> None:
    """Print a result: its timings, metrics and checks, why it is invalid, if it is, and what it answers.

    If it is not to be `answered` here, `show_answer` is called when all else was said.
    """
    backend = result.backend
    threads = backend["threads_per_device"]
    processes = backend.get("processes")
    workers = backend.get("workers_per_device", 1)
    show_sentence(
        f"\n{result.experiment} on {backend['name']} {backend['version']}, "
        f"{engine_in_words(backend)}, {', '.join(backend['devices'])}, "
        f"{threads} {'thread' if threads == 1 else 'threads'} each"
        f"{'' if workers == 1 else f' for each of {workers} workers'}"
        f"{f', in each of {processes} processes joined by ' + backend['transport'] if processes else ''}",
        console,
        "bold",
    )
    parameters = ", ".join(f"{name} = {value}" for name, value in result.parameters.items() if value is not None)
    data = "" if result.data is None else f"data: {result.data}"
    sizes = result.sizes and f"sizes: {result.sizes}"
    for aside in filter(None, (parameters, sizes, kernels_in_words(backend), data)):
        show_sentence(aside, console, ASIDE)
    for table in _tables(result):
        show_table(table, console)
    if result.answer is None:
        show_sentence(result.explanation, console, "bold")
    # The first sentence says who schedules; the others, what is unusual about the devices.
    for note in (*filter(None, backend["scheduler"].split("; ")[1:]), *result.notes):
        show_sentence(note, console, bullet="· ")
    wanted = threads * workers * sum(device.startswith("cpu") for device in backend["devices"])
    for sentence in result.machine_watch.in_words(wanted) if result.machine_watch else ():
        show_sentence(sentence, console, DOUBTFUL, bullet="· ")
    for problem in result.problems:
        show_sentence(f"INVALID: {problem}", console, f"bold {BAD}")
    if result.answer is not None and answered:
        show_answer(result.answer, console)


def show_answer(answer: Answer, console: Console, by_trace: str = "") -> None:
    """Print an answer under its heading, what a trace adds to it, and what would change it."""
    console.print("\nAnswer", style="bold")
    for sentence in filter(None, (*answer.sentences, by_trace, f"{WHAT_WOULD_CHANGE_IT} {answer.would_change}")):
        show_sentence(sentence, console)


def _tables(result: Result) -> Iterator[Table]:
    curves = EXPERIMENTS[result.experiment].curves
    if curves is not None and curves.over not in result.series:
        curves = None
    if curves is not None:
        yield bandwidths(result) if curves.quantity == "algbw_gb_per_s" else curves_table(result, curves)
    if curves is None or not curves.in_place_of_times:
        yield _timings(result)
    yield _numbers(result)


def _timings(result: Result) -> Table:
    table = Table("case")
    for heading in ("control returned after", "done after", "spread"):
        table.add_column(heading, justify="right")
    for case in result.cases:
        spread = f"± {percent(case.spread)}" if len(case.seconds) > 1 else "once"
        table.add_row(escape(case.name), seconds(case.dispatch_median), seconds(case.median), spread)
    return table


def _numbers(result: Result) -> Table:
    table = Table("metric", Column("value", justify="right"))
    for name, value in result.metrics.items():
        interval = Interval(value, *result.metric_intervals.get(name, (value, value)))
        table.add_row(name, EXPERIMENTS[result.experiment].metric_named(name).write(interval, result))
    table.add_section()
    for name, value in result.checks.items():
        table.add_row(f"{name} (check)", f"{value:.1e}")
    return table
