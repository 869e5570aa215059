"""Measure the time and the memory that reading a long trace and computing its figures take.

    python -m benchmarks.trace_reading --events 1000000

Two synthetic traces of so many events are written, one in the form of PyTorch's profiler (complete events with
arguments) and one in MXNet's (begins and ends), and each is read in a fresh process, as `parallel-core trace` does.
"""

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import click

from parallel_core.measurement.timing import without_garbage_collection
from parallel_core.trace_analysis.figures import timeline_figures
from parallel_core.trace_analysis.trace_files import read_timeline

__all__ = ["main", "write_events"]

BEGINNINGS = {
    "torch": '{"schemaVersion": 1, "traceEvents": [\n',
    "mxnet": '{"traceEvents": [\n'
    '{"ph": "M", "args": {"name": "cpu/1"}, "pid": 1, "name": "process_name"},\n'
    '{"ph": "M", "args": {"name": "cpu pinned/"}, "pid": 2, "name": "process_name"},\n',
}
END = '\n], "displayTimeUnit": "ms"}\n'
EPOCH = 1_795_279_713_356_264
"""Microseconds from 1970 to a day on which traces were recorded."""
THREAD = 10_051_307_376_349_735_870
COMPLETE = """{{
    "ph": "X", "cat": "cpu_op", "name": "aten::operator_{kind}", "pid": 869, "tid": {thread},
    "ts": {start}.047, "dur": 5.125,
    "args": {{ "External id": {number}, "Record function id": 0, "Ev Idx": {number} }}
  }}"""
BEGIN_OR_END = """{{
        "name": "operator_{kind}",
        "cat": "operator",
        "ph": "{phase}",
        "ts": {time},
        "pid": {device},
        "tid": {thread}
    }}"""


def write_events(stream: BinaryIO, count: int, form: str) -> None:
    """Write a trace of `count` events in the form of `torch` or `mxnet`."""
    stream.write(BEGINNINGS[form].encode())
    for number, event in enumerate(torch_events(count) if form == "torch" else mxnet_events(count)):
        stream.write((",\n" if number else "").encode() + event.encode())
    stream.write(END.encode())


def torch_events(count: int) -> Iterator[str]:
    """Make complete events that follow each other on three threads."""
    for number in range(count):
        start = EPOCH + 7 * number
        yield COMPLETE.format(kind=number % 50, thread=869 + number % 3, start=start, number=number)


def mxnet_events(count: int) -> Iterator[str]:
    """Make begins and their ends on two devices."""
    for number in range(count):
        operator, phase = number // 2, "BE"[number % 2]
        device = 1 + operator % 2
        time_ = EPOCH + 7 * number
        yield BEGIN_OR_END.format(kind=operator % 50, phase=phase, time=time_, device=device, thread=THREAD)


@click.command()
@click.option("--events", default=1_000_000, show_default=True)
@click.option("--file", type=click.Path(path_type=Path), help="Read this file, in this process.")
def main(events: int, file: Path | None) -> None:
    """Print seconds and peak memory."""
    if file is not None:
        show(file)
        return
    with tempfile.TemporaryDirectory() as folder:
        for form in ("torch", "mxnet"):
            path = Path(folder) / f"{form}.json"
            with path.open("wb") as stream:
                write_events(stream, events, form)
            print(f"{form}: {events:,} events, {path.stat().st_size / 1e6:.0f} MB", flush=True)
            subprocess.run([sys.executable, "-m", "benchmarks.trace_reading", "--file", path], check=True)


def show(path: Path) -> None:
    """Read a trace, compute its figures and print what that cost."""
    start = time.perf_counter()
    with without_garbage_collection():
        timeline = read_timeline(path)
        read = time.perf_counter()
        timeline_figures(timeline)
        computed = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"  {len(timeline.spans):,} spans: read in {read - start:.1f} s, figures in {computed - read:.1f} s")
    print(f"  peak memory {peak:.0f} MiB")


if __name__ == "__main__":
    main()
