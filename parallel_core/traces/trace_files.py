"""Timelines from files, and to files: our own, and what the frameworks' profilers wrote for other
programs; and the files that a folder stands for.
"""

import gzip
import json
import re
import shutil
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from io import BytesIO
from pathlib import Path

from backends.profiling import Timeline, Trace, TraceFile, timeline_in
from backends.profiling.perfetto import write_timeline
from parallel_core.measurement.timing import without_garbage_collection
from parallel_core.system.errors import RequestError
from parallel_core.system.files import write_whole
from parallel_core.traces.steps.figures import first_steps

ENDINGS = (".json", ".json.gz")
RECORDINGS = "plugins/profile/*"
"""Where jax.profiler.trace puts a folder for each recording, which has the time as its name."""
RECORDED_AT = "%Y_%m_%d_%H_%M_%S"
AT_ONCE = timedelta(minutes=1)
"""Recordings of several hosts that begin no further apart are one."""
OF_JAX, WRITTEN_TWICE = ".trace.json.gz", "perfetto_trace.json.gz"
"""What it writes for each host, and one host's again under another name."""
BINARY = ".xplane.pb"
WHOLE_STEPS = "parallel_core_whole_steps"
"""The key under which what `profile` recorded states how many steps are whole: it may have ended in
one.
"""
CORE_WAIT_SHARE = "parallel_core_core_wait_share"
"""The key under which it states during what share of that the busiest thread waited for a core."""


def read_timeline(path: Path) -> Timeline:
    """Read a trace of ours or of a framework's profiler, plain or compressed; the notes list what
    was wrong with the file.

    Raises RequestError if the file cannot be read, or is from another program.
    """
    # A million slices set the garbage collector off repeatedly, in a third of the time, and none is
    # garbage.
    with without_garbage_collection():
        trace, timeline = trace_and_timeline(path)
        return to_last_step(timeline, trace)


def trace_and_timeline(path: Path) -> tuple[Trace, Timeline]:
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


def to_last_step(timeline: Timeline, trace: Trace) -> Timeline:
    """Return a trace's timeline up to the end of its last whole step, if it states how many there
    are.
    """
    whole = trace.properties.get(WHOLE_STEPS)
    return first_steps(timeline, whole) if isinstance(whole, int) else timeline


def core_wait_share(trace: Trace) -> float | None:
    """Return the share of the time in which the busiest thread waited for a core, if it is said."""
    share = trace.properties.get(CORE_WAIT_SHARE)
    return share if isinstance(share, float) and 0 <= share < 1 else None


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
