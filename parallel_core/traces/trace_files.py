"""Timelines from files: our own, and what the frameworks' profilers wrote for other programs; a
file for each rank.
"""

import gzip
import json
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from io import BytesIO
from pathlib import Path

import numpy as np

from backends.profiling import HOST_DEVICE, Spans, Timeline, Trace, TraceFile, timeline_in
from backends.profiling.collectives import (
    Collective,
    check_one_rank,
    collectives_of,
    job_of,
    with_communication,
)
from backends.profiling.perfetto import OWN_KEY, write_timeline
from parallel_core.measurement.timing import without_garbage_collection
from parallel_core.system.errors import RequestError
from parallel_core.system.files import write_whole
from parallel_core.traces.case_spans import CaseSpans, cases_of
from parallel_core.traces.cases import CaseFigures
from parallel_core.traces.evidence.interference import Price, interference
from parallel_core.traces.steps.figures import (
    first_steps,
    launched_in,
    numbered_step,
    only_step,
)
from parallel_core.traces.trust import Doubt, doubts_about

ENDINGS = (".json", ".json.gz")
RECORDINGS = "plugins/profile/*"
"""Where jax.profiler.trace puts a folder for each recording, which has the time as its name."""
RECORDED_AT = "%Y_%m_%d_%H_%M_%S"
AT_ONCE = timedelta(minutes=1)
"""Recordings of several hosts that begin no further apart are one."""
OF_JAX, WRITTEN_TWICE = ".trace.json.gz", "perfetto_trace.json.gz"
"""What it writes for each host, and one host's again under another name."""
BINARY = ".xplane.pb"
RANK_IN_NAME = re.compile(r"rank[ _-]?(\d+)", re.IGNORECASE)
WHOLE_STEPS = "parallel_core_whole_steps"
"""The key under which what `profile` recorded states how many steps are whole: it may have ended in
one.
"""
CORE_WAIT_SHARE = "parallel_core_core_wait_share"
"""The key under which it states during what share of that the busiest thread waited for a core."""


@dataclass(frozen=True)
class RankTrace:
    """What was read of one rank."""

    file: Path
    rank: int | None
    """As the trace says itself."""
    world_size: int | None
    timeline: Timeline
    spans: int
    """How many there were, also if the timeline does not keep them."""
    figures: Sequence[CaseFigures]
    collectives: tuple[Collective, ...]
    """Their times are nanoseconds by the clock of the file."""
    begin: int | None
    """When the timeline begins, by the same clock; None if that is not known."""
    prices: tuple[Price, ...] = ()
    """How much longer computations took while other operations ran beside them."""
    doubts: tuple[Doubt, ...] = ()
    """What a reader must know before he trusts the figures."""
    origin: int | None = None
    """The timeline's zero by the clock of the file, in nanoseconds; None if that is not known."""
    core_wait_share: float | None = None
    """During what share of the time its busiest thread waited for a core, if the trace says it."""


def read_timeline(path: Path) -> Timeline:
    """Read a trace of ours or of a framework's profiler, plain or compressed; the notes list what
    was wrong with the file.

    Raises RequestError if the file cannot be read, or is from another program.
    """
    # A million slices set the garbage collector off repeatedly, in a third of the time, and none is
    # garbage.
    with without_garbage_collection():
        trace, timeline = _read(path)
        return _to_last_step(timeline, trace)


def write_trace_file(timeline: Timeline, path: Path) -> None:
    """Write a Chrome trace, compressed if the path ends in `.gz`; `-` is standard output. Raises
    OSError.
    """
    plain = BytesIO()
    write_timeline(timeline, plain)
    # Without the time of day, the same timeline gives the same bytes.
    content = gzip.compress(plain.getvalue(), mtime=0) if path.suffix == ".gz" else plain.getvalue()
    write_whole(path, lambda stream: stream.write(content))


def pack_trace(
    plain: Path, path: Path, whole_steps: int, core_wait_share: float | None = None
) -> None:
    """Compress the trace that a profiler wrote, with what is stated of it. Raises OSError."""
    stated = json.dumps({WHOLE_STEPS: whole_steps, CORE_WAIT_SHARE: core_wait_share})
    with plain.open("rb") as written, gzip.open(path, "wb", compresslevel=5) as stream:
        # PyTorch writes a line break before the bracket.
        _, _, begun = written.read(80).partition(b"{")
        stream.write(stated.encode().removesuffix(b"}") + b"," + begun)
        shutil.copyfileobj(written, stream)


def files_of(paths: Iterable[Path]) -> list[Path]:
    """Return the files that some paths name; a folder stands for the traces in it. Raises
    RequestError.
    """
    files: list[Path] = []
    for path in paths:
        if not path.is_dir():
            _check_format(path)
            files.append(path)
            continue
        inside = sorted(_traces_in(path) or _last_recording(path), key=_by_numbers)
        if not inside:
            for binary in path.rglob(f"*{BINARY}"):
                _check_format(binary)
            raise RequestError(
                f"{path} holds no trace: none of its files ends in {' or '.join(ENDINGS)}"
            )
        files += inside
    for file, count in Counter(files).items():
        if count > 1:
            raise RequestError(f"{file} is named twice: name each rank's file once")
    return files


def _traces_in(folder: Path) -> list[Path]:
    """Return the traces that lie in a folder, without those that JAX wrote twice."""
    files = [file for file in folder.iterdir() if file.name.endswith(ENDINGS) and file.is_file()]
    if any(file.name.endswith(OF_JAX) for file in files):
        return [file for file in files if file.name != WRITTEN_TWICE]
    return files


def _last_recording(folder: Path) -> list[Path]:
    """Return the traces of the last of JAX's recordings within a folder, one of each host.

    Hosts that record at the same time name their folders by their own clocks.
    """
    recordings = sorted({file.parent for file in folder.glob(f"{RECORDINGS}/*{OF_JAX}")})
    last_of_host: dict[str, Path] = {}
    last_time = _recorded_at(recordings[-1]) if recordings else None
    for recording in recordings:
        time = _recorded_at(recording)
        is_last = recording == recordings[-1]
        is_at_once = time and last_time and last_time - time <= AT_ONCE
        if is_last or is_at_once:
            last_of_host |= {file.name: file for file in _traces_in(recording)}
    return list(last_of_host.values())


def _recorded_at(recording: Path) -> datetime | None:
    """Return the time that a recording's folder has as its name, if it has one."""
    try:
        return datetime.strptime(recording.name, RECORDED_AT)
    except ValueError:
        return None


def _by_numbers(file: Path) -> list[tuple[int, str]]:
    """Return the key by which host 2 stands before host 10."""
    parts = re.split(r"(\d+)", str(file))
    return [(int(part), "") if part.isdigit() else (0, part) for part in parts]


def _check_format(path: Path) -> None:
    """Raise RequestError for XLA's binary form, which lies beside the trace that is read."""
    if path.name.endswith(BINARY):
        raise RequestError(
            f"{path} is XLA's binary form, which is not read: give the {OF_JAX} beside it, which "
            "jax.profiler.trace(FOLDER, create_perfetto_trace=True) writes, or FOLDER"
        )


def read_ranks(
    files: Iterable[Path],
    kernels: re.Pattern[str] | None = None,
    step: int | None = None,
    *,
    keep_spans: bool = False,
) -> dict[int, RankTrace]:
    """Read the traces of all ranks, of which each file holds one; in the order of the ranks.

    A trace's rank is what it says itself, else what its file's name says, else its place. Kernels
    whose full names hold `kernels` communicate, too. Of a trace with steps only what belongs to
    `step` is kept, if one is named. Without `keep_spans` only one trace is in memory at a time.
    Raises RequestError, which names the file, for one that cannot be used, also because several
    ranks were merged into it, and if two are of the same rank.
    """
    read: list[RankTrace] = []
    with without_garbage_collection():
        for file in files:
            trace = _read_rank(file, kernels, step)
            if not keep_spans:
                figures = tuple(case.settled() for case in trace.figures)
                timeline = replace(trace.timeline, spans=(), host_calls=None)
                trace = replace(trace, figures=figures, timeline=timeline)
            read.append(trace)
    return dict(sorted(_by_rank(read).items()))


def side_by_side(ranks: Mapping[int, RankTrace], clocks_agree: bool) -> Timeline:
    """Return one timeline with the devices of all ranks, each named after its rank.

    If their clocks agree, each rank begins when it did; otherwise all begin at zero.
    """
    delays = _begins_later(ranks, clocks_agree)
    spans_of_ranks = []
    for rank, trace in ranks.items():
        spans = trace.timeline.columns.moved(delays[rank])
        queues = tuple((f"rank {rank} {device}", queue) for device, queue in spans.queues)
        spans_of_ranks.append(replace(spans, queues=queues))
    # Each source once, in the order of the ranks.
    sources = dict.fromkeys(trace.timeline.source for trace in ranks.values())
    return Timeline(", ".join(sources), Spans.joined(spans_of_ranks))


def _begins_later(ranks: Mapping[int, RankTrace], clocks_agree: bool) -> dict[int, int]:
    """Return how many nanoseconds after the first one each rank's timeline begins; 0 for all if
    clocks disagree.
    """
    begins = {rank: trace.begin for rank, trace in ranks.items() if trace.begin is not None}
    if not clocks_agree or len(begins) < len(ranks):
        return dict.fromkeys(ranks, 0)
    first_begin = min(begins.values())
    return {rank: begin - first_begin for rank, begin in begins.items()}


def _read(path: Path) -> tuple[Trace, Timeline]:
    """Read a file as a trace in Chrome's format, empty if it has another one, and as a timeline.

    Raises RequestError if it cannot be used.
    """
    file = TraceFile(path)
    try:
        timeline = timeline_in(file)
        if not timeline.spans:
            raise ValueError("it holds nothing that ran on a device, or was launched")
    except OSError as error:
        raise RequestError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        # What is no Chrome trace says so with its path.
        sentence = str(error) if file.problem else f"{path} cannot be used: {error}"
        raise RequestError(sentence) from error
    trace = file.trace or Trace(())
    notes = dict.fromkeys((*timeline.notes, *trace.problems))
    return trace, replace(timeline, notes=tuple(notes))


@contextmanager
def _naming(file: Path, problem: str = "cannot be used") -> Iterator[None]:
    """Let the error name the file."""
    try:
        yield
    except ValueError as error:
        raise RequestError(f"{file} {problem}: {error}") from error


def _to_last_step(timeline: Timeline, trace: Trace) -> Timeline:
    """Return a trace's timeline up to the end of its last whole step, if it states how many there
    are.
    """
    whole = trace.properties.get(WHOLE_STEPS)
    return first_steps(timeline, whole) if isinstance(whole, int) else timeline


def _read_rank(file: Path, kernels: re.Pattern[str] | None, step: int | None) -> RankTrace:
    """Read one rank's trace, as `read_ranks` says."""
    trace, whole_timeline = _read(file)
    with _naming(file):
        check_one_rank(trace)
    timeline = _to_last_step(whole_timeline, trace)
    if kernels is not None:
        timeline = with_communication(timeline, kernels)
    doubts = tuple(doubts_about(timeline))
    # The reader's own notes are among them.
    sentences = dict.fromkeys(doubt.sentence for doubt in doubts)
    timeline = replace(timeline, notes=(*timeline.models, *sentences))
    spans = timeline.columns
    if step is not None:
        with _naming(file, "cannot be cut"):
            window = numbered_step(timeline, step)
        cases: tuple[CaseSpans, ...] = (only_step(timeline, window),)
        spans = spans.select(launched_in(spans, window))
        timeline = replace(timeline, spans=spans, begin=window.start, annotations=(window,))
    else:
        cases = cases_of(timeline)
    rank, world_size = job_of(trace)
    base = trace.properties.get("baseTimeNanoseconds")
    begin = trace.begin + (base if isinstance(base, int) else 0)
    is_own = OWN_KEY in trace.properties
    # Of another format than PyTorch's the timeline is all that is known.
    only_spans = is_own or not trace.slices
    # Cases begin at zero, wherever they are in the trace.
    has_clock = not (only_spans or timeline.cases)
    if only_spans:
        collectives = tuple(_own_collectives(spans))
    else:
        is_cut = len(timeline.spans) < len(whole_timeline.spans)
        collectives = tuple(_collectives(trace, spans, begin, is_cut))
    zero = 0 if only_spans else begin
    collective_at = {
        (collective.start - zero, collective.end - zero): collective for collective in collectives
    }
    origin = trace.begin if has_clock else None
    if is_own:
        origin = 0
    core_wait_share = _core_wait_share(trace)
    # The arguments of a million events would take room from the figures.
    del trace
    return RankTrace(
        file=file,
        rank=rank,
        world_size=world_size,
        timeline=timeline,
        spans=len(timeline.spans),
        figures=tuple(CaseFigures(case, collective_at) for case in cases),
        collectives=collectives,
        begin=begin if has_clock else None,
        prices=interference(cases),
        doubts=doubts,
        origin=origin,
        core_wait_share=core_wait_share,
    )


def _core_wait_share(trace: Trace) -> float | None:
    """Return the share of the time in which the busiest thread waited for a core, if it is said."""
    share = trace.properties.get(CORE_WAIT_SHARE)
    return share if isinstance(share, float) and 0 <= share < 1 else None


def _collectives(trace: Trace, spans: Spans, begin: int, is_cut: bool) -> Iterator[Collective]:
    """Yield the collectives of a trace whose spans are in the timeline, by the clock of the file.

    `begin` is when the trace begins by that clock. If the timeline was cut, the trace has more.
    """
    exchanges = spans.select(spans.of_kind("exchange"))
    names = {exchanges.operators[place] for place in np.unique(exchanges.operator_of).tolist()}
    kept = set(zip(exchanges.starts.tolist(), exchanges.ends.tolist(), strict=True))
    for collective in collectives_of(trace, names):
        start, end = collective.start, collective.end
        if not is_cut or (start, end) in kept:
            yield collective._replace(start=begin + start, end=begin + end)


def _own_collectives(spans: Spans) -> Iterator[Collective]:
    """Yield the exchanges of a timeline of which nothing else is known, as collectives."""
    for span in spans:
        if span.kind == "exchange" and span.device != HOST_DEVICE:
            yield Collective(span.name, "", None, span.queue, span.start, span.end)


def _rank_of(trace: RankTrace) -> int | None:
    """Return the rank that a trace says itself, or else its file's name, if they say one."""
    match = RANK_IN_NAME.search(trace.file.name)
    if trace.rank is None and match is not None:
        return int(match[1])
    return trace.rank


def _by_rank(traces: Sequence[RankTrace]) -> dict[int, RankTrace]:
    """Return the traces by what they say, or their files' names; by their order if none says it.

    Raises RequestError if only some of them say it, and if two are of the same rank.
    """
    ranks = [_rank_of(trace) for trace in traces]
    if all(rank is None for rank in ranks):
        return dict(enumerate(traces))
    by_rank: dict[int, RankTrace] = {}
    for trace, rank in zip(traces, ranks, strict=True):
        if rank is None:
            raise RequestError(
                f"{trace.file} does not say its rank, unlike other files: name it such as "
                "rank-0.json"
            )
        if rank in by_rank:
            raise RequestError(
                f"{by_rank[rank].file} and {trace.file} are both of rank {rank}: give one trace of "
                "each rank"
            )
        by_rank[rank] = trace
    return by_rank
