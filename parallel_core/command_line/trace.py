"""`parallel-core trace`: read the files of profilers, and show overlap and waits, also of ranks."""

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from parallel_core.command_line import options, requirements
from parallel_core.measurement.limits import Limit
from parallel_core.report.plots import check_drawing, write_picture_file
from parallel_core.system import files
from parallel_core.system.errors import RequestError
from parallel_core.system.formatting import listed
from parallel_core.terminal.console import ASIDE
from parallel_core.terminal.layout import show_sentence, show_sentences
from parallel_core.terminal.trace import show_exchanges, show_ranks, show_trace
from parallel_core.traces.bounds.answer import answer_of_trace
from parallel_core.traces.figures import as_json
from parallel_core.traces.perfetto import write_findings
from parallel_core.traces.profile.requirements import (
    Requirement,
    cannot_answer,
    judge,
    recording_of,
)
from parallel_core.traces.ranks import Ranks, summary_of
from parallel_core.traces.ranks.jobs import of_processes
from parallel_core.traces.ranks.reading import RankTrace, read_ranks, side_by_side
from parallel_core.traces.trace_files import files_of


def _pattern(text: str) -> re.Pattern[str]:
    """Return a regular expression; raises ValueError if the text is none."""
    try:
        return re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is no regular expression: {error}") from error


@click.command()
@click.argument("paths", type=options.PATH, nargs=-1, required=True, metavar="FILE...")
@options.path("--timeline", "picture", "Draw it, a lane for each queue, as SVG.", "PICTURE")
@click.option(
    "--communication",
    "kernels",
    type=options.Parsed(_pattern, "regex"),
    help="Kernels whose full names hold it communicate, too: my_push|multimem. Those of NCCL, "
    "RCCL, DeepEP and NVSHMEM always do.",
)
@click.option(
    "--step",
    type=click.IntRange(0, 10**9),
    metavar="N",
    help="Only step N, where the program marks its steps: ProfilerStep#N, or numbered annotations.",
)
@options.path(
    "--perfetto",
    "with_findings",
    "Write it for ui.perfetto.dev, with steps, what was hidden and why queues were idle as tracks; "
    "FILE.gz is compressed.",
)
@click.option("--details", "with_details", is_flag=True, help="Print all tables, too.")
@click.option(
    "--exchanges",
    "with_exchanges",
    is_flag=True,
    help="Print the exchanges by kind, process group and pass, and what it cost to hide them.",
)
@requirements.limits
@requirements.figures
@options.json_file
def trace(
    paths: tuple[Path, ...],
    picture: Path | None,
    kernels: re.Pattern[str] | None,
    step: int | None,
    with_findings: Path | None,
    with_details: bool,
    with_exchanges: bool,
    limits: tuple[Limit, ...],
    json_path: Path | None,
) -> int:
    """Show what overlapped in a trace, and what did not.

    It says how busy each queue was, and what bounds the time or a step.

    FILE is a Chrome trace, .json or .json.gz, written by `run --trace`, torch.profiler,
    mx.profiler or jax.profiler, also by your own program. Several files, or a folder of them, are
    the ranks of one job: one table shows who waited for whom.

    To zoom and search, open FILE itself in https://ui.perfetto.dev or, in Chrome, chrome://tracing.
    """
    if picture is not None:
        check_drawing(picture)
    traces = files_of(paths)
    files.check_outputs(picture, with_findings, json_path, others=traces)
    if with_findings is not None and len(traces) > 1:
        raise RequestError("--perfetto takes one trace: give one rank's file")
    keep_spans = picture is not None or with_findings is not None
    ranks = read_ranks(traces, kernels, step, keep_spans=keep_spans)
    console = options.console_beside(json_path, with_findings)
    if len(ranks) == 1:
        (only_rank,) = ranks.values()
        timeline, document = only_rank.timeline, partial(_as_json, only_rank)
        show = partial(show_trace, only_rank, with_details, with_exchanges, console)
    else:
        summary = summary_of(ranks)
        timeline = side_by_side(ranks, bool(summary.clocks_agree))
        document = partial(_ranks_as_json, ranks, summary)
        show = partial(_show_several, ranks, summary, with_exchanges, console)
    recording = recording_of(ranks)
    judged: tuple[Requirement, ...] = ()
    if limits:
        judged = judge(limits, recording, of_processes(recording.processes))
    # Files are written first: printing fails if the reader of a pipe leaves early.
    if picture is not None:
        write_picture_file(timeline, picture)
    if with_findings is not None:
        (only_rank,) = ranks.values()
        _write_findings(only_rank, with_findings)
    if json_path is not None:
        of_limits = {"requirements": judged, "cannot_answer": cannot_answer(recording)}
        files.write_json(json_path, {**document(), **as_json(of_limits)})
    show()
    if with_findings is not None:
        console.print(f"Wrote {with_findings}: open it in ui.perfetto.dev", soft_wrap=True)
    if picture is not None:
        console.print(f"Timeline: {picture}", soft_wrap=True)
    requirements.show_requirements(judged, console)
    return requirements.status_of(judged)


def _write_findings(rank: RankTrace, path: Path) -> None:
    """Write a trace with its findings for ui.perfetto.dev; raises RequestError if that fails."""
    if rank.origin is None or len(rank.timeline.cases) > 1:
        raise RequestError(
            f"{rank.file} is no Chrome trace of a whole program, which --perfetto needs"
        )
    try:
        write_findings(rank.file, rank.timeline, rank.origin, path)
    except OSError as error:
        raise RequestError(f"cannot write {path}: {error.strerror or error}") from error


def _show_several(
    ranks: Mapping[int, RankTrace], summary: Ranks, with_exchanges: bool, console: Console
) -> None:
    """Print the figures of several ranks, and each note with the ranks that have it."""
    sources = dict.fromkeys(rank.timeline.source for rank in ranks.values())
    spans = sum(rank.spans for rank in ranks.values())
    show_sentence(f"{listed(list(sources))}: {spans:,} spans", console, "bold")
    show_ranks(summary, console)
    if with_exchanges:
        show_exchanges(summary.exchanges, list(ranks.values()), console)
    reasons = of_processes(case for rank in ranks.values() for case in rank.figures)
    show_sentences([reason.in_words for reason in reasons], console, bullet="· ")
    numbers_by_note: dict[str, list[str]] = {}
    for number, rank in ranks.items():
        for note in rank.notes:
            numbers_by_note.setdefault(note, []).append(str(number))
    for note, numbers in numbers_by_note.items():
        sentence = note
        if len(numbers) < len(ranks):
            noun = "rank" if len(numbers) == 1 else "ranks"
            sentence = f"{noun} {listed(numbers)}: {note}"
        show_sentence(sentence, console, ASIDE, bullet="· ")


def _as_json(rank: RankTrace) -> dict[str, Any]:
    """Return the object of a trace in the JSON."""
    return {
        "source": rank.timeline.source,
        "notes": rank.notes,
        "doubts": as_json(rank.doubts),
        "unlinked_operations": rank.timeline.unlinked,
        "answer": as_json(answer_of_trace(rank.figures)),
        "cases": as_json(rank.figures),
        "interference": as_json(rank.prices),
    }


def _ranks_as_json(ranks: Mapping[int, RankTrace], summary: Ranks) -> dict[str, Any]:
    """Return the object of several ranks in the JSON."""
    objects = [
        {"rank": number, "file": str(rank.file), **_as_json(rank)} for number, rank in ranks.items()
    ]
    return {"ranks": objects, "summary": as_json(summary)}
