"""Measure what reading a long trace and computing its figures take: processor time of one core, and memory.

    python -m benchmarks.trace_reading --events 1000000
    python -m benchmarks.trace_reading --hta /path/to/python TRACE.json.gz …

Three synthetic traces of so many events are written: of PyTorch's profiler on a CPU and on a GPU (complete events with
arguments, and flows), and of MXNet's (begins and ends). They, and traces that are named, are read in fresh processes,
round by round, as `parallel-core trace` does. With an interpreter that has Holistic Trace Analysis, that reads the same
files in the same rounds and computes what both have: it knows GPUs only, so that other traces are ours alone.
"""

import gzip
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import BinaryIO

import click

from backends.host import core_numbers, on_cores
from parallel_core.measurement.timing import without_garbage_collection
from parallel_core.trace_analysis.figures import timeline_figures
from parallel_core.trace_analysis.trace_files import read_timeline

BEGINNINGS = {
    "torch": '{"schemaVersion": 1, "traceEvents": [\n',
    "gpu": '{"schemaVersion": 1, "distributedInfo": {"rank": 0, "world_size": 1}, "traceEvents": [\n',
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
LAUNCHED = """{{
    "ph": "X", "cat": "cpu_op", "name": "aten::operator_{kind}", "pid": 869, "tid": 869,
    "ts": {start}.047, "dur": 24.125,
    "args": {{ "External id": {number}, "Record function id": 0, "Ev Idx": {number} }}
  }},
{{
    "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 869, "tid": 869,
    "ts": {start}.914, "dur": 4.370,
    "args": {{ "External id": {number}, "cbid": 211, "correlation": {number} }}
  }},
{{
    "ph": "s", "id": {number}, "pid": 869, "tid": 869, "ts": {start}.914, "cat": "ac2g", "name": "ac2g"
  }},
{{
    "ph": "X", "cat": "kernel", "name": "{kernel}", "pid": 0, "tid": {stream},
    "ts": {later}.259, "dur": {duration}.072,
    "args": {{
      "External id": {number}, "queued": 0, "device": 0, "context": 1, "stream": {stream}, "correlation": {number},
      "registers per thread": 32, "shared memory": 0, "grid": [512, 1, 1], "block": [128, 1, 1]
    }}
  }},
{{
    "ph": "f", "id": {number}, "pid": 0, "tid": {stream}, "ts": {later}.259, "cat": "ac2g", "name": "ac2g", "bp": "e"
  }}"""
EVENTS_OF_LAUNCH = 5
BEGIN_OR_END = """{{
        "name": "operator_{kind}",
        "cat": "operator",
        "ph": "{phase}",
        "ts": {time},
        "pid": {device},
        "tid": {thread}
    }}"""
COMPARED = """
import json, logging, resource, sys, time
from hta.trace_analysis import TraceAnalysis
logging.disable(logging.CRITICAL)
start = time.process_time()
analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="")
read = time.process_time()
analysis.get_temporal_breakdown(visualize=False)
analysis.get_comm_comp_overlap(visualize=False)
analysis.get_idle_time_breakdown(ranks=[0], visualize=False)
analysis.get_gpu_kernel_breakdown(visualize=False)
analysis.get_queue_length_summary(ranks=[0])
computed = time.process_time()
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps([read - start, computed - read, peak]))
"""
"""What Holistic Trace Analysis is asked for; `analysis` reads one file, in this process."""


def write_events(stream: BinaryIO, count: int, form: str) -> None:
    """Write a trace of `count` events in the form of `torch`, `gpu` or `mxnet`."""
    make = {"torch": torch_events, "gpu": gpu_events, "mxnet": mxnet_events}[form]
    stream.write(BEGINNINGS[form].encode())
    for number, event in enumerate(make(count)):
        stream.write((",\n" if number else "").encode() + event.encode())
    stream.write(END.encode())


def torch_events(count: int) -> Iterator[str]:
    """Make complete events that follow each other on three threads."""
    for number in range(count):
        start = EPOCH + 7 * number
        yield COMPLETE.format(kind=number % 50, thread=869 + number % 3, start=start, number=number)


def gpu_events(count: int) -> Iterator[str]:
    """Make operators, the calls in them, kernels and flows; every twentieth kernel is NCCL's, on another stream."""
    nccl = {"duration": 200, "stream": 20, "kernel": "ncclDevKernel_AllReduce_Sum_f32"}
    for number in range(1, count // EVENTS_OF_LAUNCH + 1):
        computes = {"duration": 20, "stream": 7, "kernel": f"void kernel_{number % 50}<float, 4>(int)"}
        start = EPOCH + 30 * number
        what = computes if number % 20 else nccl
        yield LAUNCHED.format(kind=number % 50, number=number, start=start, later=start + 12, **what)


def mxnet_events(count: int) -> Iterator[str]:
    """Make begins and their ends on two devices."""
    for number in range(count):
        operator, time_ = number // 2, EPOCH + 7 * number
        of_operator = {"kind": operator % 50, "device": 1 + operator % 2, "thread": THREAD}
        yield BEGIN_OR_END.format(phase="BE"[number % 2], time=time_, **of_operator)


@click.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--events", default=1_000_000, show_default=True, help="In each synthetic trace; 0: none are written.")
@click.option("--rounds", default=3, show_default=True)
@click.option("--hta", type=click.Path(path_type=Path), help="An interpreter with Holistic Trace Analysis.")
@click.option("--read", type=click.Path(path_type=Path), help="Read this file, in this process.")
def main(files: Sequence[Path], events: int, rounds: int, hta: Path | None, read: Path | None) -> None:
    """Print seconds of one core and peak memory, the median of some rounds."""
    if read is not None:
        print(json.dumps(cost(read)))
        return
    with tempfile.TemporaryDirectory() as folder:
        made = [Path(folder) / name for name in ("torch.json", "mxnet.json", "gpu.json.gz")] if events else []
        for path in made:
            with gzip.open(path, "wb", 1) if path.suffix == ".gz" else path.open("wb") as stream:
                write_events(stream, events, path.name.partition(".")[0])
        for path in (*made, *files):
            print(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB", flush=True)
            commands = {"parallel-core": [sys.executable, "-m", "benchmarks.trace_reading", "--read"]}
            if hta is not None and path not in made[:2]:
                commands["HTA"] = [str(hta), "-c", COMPARED]
            show(path, commands, rounds)


def show(path: Path, commands: dict[str, list[str]], rounds: int) -> None:
    """Let commands read a file in turn, each on one core, and print what it cost."""
    costs: dict[str, list[list[float]]] = {name: [] for name in commands}
    with on_cores({core_numbers()[0]}):
        for name, command in [*commands.items()] * rounds:
            done = subprocess.run([*command, path], stdout=subprocess.PIPE, text=True, check=True)
            costs[name].append(json.loads(done.stdout.splitlines()[-1]))
    medians = {}
    for name, own in costs.items():
        read, figures, peak = (median(column) for column in zip(*own, strict=True))
        both = [some[0] + some[1] for some in own]
        medians[name] = median(both)
        spread = f"{min(both):.2f} to {max(both):.2f} s; read {read:.2f}, figures {figures:.2f}"
        print(f"  {name}: {medians[name]:.2f} s ({spread}), {peak:.0f} MiB")
    if len(medians) > 1:
        ours, theirs = medians.values()
        print(f"  {theirs / ours:.1f} × as fast", flush=True)


def cost(path: Path) -> tuple[float, float, float]:
    """Read a trace and compute its figures, in this process.

    Return seconds of one core for reading and for the figures, without imports, and the largest memory in MiB.
    """
    start = time.process_time()
    with without_garbage_collection():
        timeline = read_timeline(path)
        read = time.process_time()
        timeline_figures(timeline)
        computed = time.process_time()
    return read - start, computed - read, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
