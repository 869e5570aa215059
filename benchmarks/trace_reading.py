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
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import BinaryIO, NamedTuple

import click

from parallel_core.measurement.timing import without_garbage_collection
from parallel_core.trace_analysis.figures import timeline_figures
from parallel_core.trace_analysis.trace_files import read_timeline

__all__ = ["main", "write_events"]

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


class Cost(NamedTuple):
    """Seconds of one core for reading and for the figures, without imports; the process's largest memory in MiB."""

    read: float
    figures: float
    peak: float

    @property
    def seconds(self) -> float:
        """Both together."""
        return self.read + self.figures


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
    for number in range(1, count // EVENTS_OF_LAUNCH + 1):
        communicates = number % 20 == 0
        kernel = "ncclDevKernel_AllReduce_Sum_f32" if communicates else f"void kernel_{number % 50}<float, 4>(int)"
        yield LAUNCHED.format(
            kind=number % 50,
            number=number,
            start=EPOCH + 30 * number,
            later=EPOCH + 30 * number + 12,
            duration=200 if communicates else 20,
            stream=20 if communicates else 7,
            kernel=kernel,
        )


def mxnet_events(count: int) -> Iterator[str]:
    """Make begins and their ends on two devices."""
    for number in range(count):
        operator, phase = number // 2, "BE"[number % 2]
        device = 1 + operator % 2
        time_ = EPOCH + 7 * number
        yield BEGIN_OR_END.format(kind=operator % 50, phase=phase, time=time_, device=device, thread=THREAD)


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
        made = [Path(folder) / f"{form}.json{end}" for form, end in (("torch", ""), ("mxnet", ""), ("gpu", ".gz"))]
        for path in made if events else []:
            with gzip.open(path, "wb", 1) if path.suffix == ".gz" else path.open("wb") as stream:
                write_events(stream, events, path.name.partition(".")[0])
        for path in [*(made if events else []), *files]:
            print(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB", flush=True)
            ours = [sys.executable, "-m", "benchmarks.trace_reading", "--read"]
            commands = {"parallel-core": ours}
            if hta is not None and path.name not in ("torch.json", "mxnet.json"):
                commands["HTA"] = [str(hta), "-c", COMPARED]
            show(path, commands, rounds)


def show(path: Path, commands: dict[str, list[str]], rounds: int) -> None:
    """Let commands read a file in turn, each on one core, and print what it cost."""
    core = min(os.sched_getaffinity(0))
    costs: dict[str, list[Cost]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            done = subprocess.run(
                [*command, path],
                stdout=subprocess.PIPE,
                text=True,
                check=True,
                preexec_fn=lambda: os.sched_setaffinity(0, {core}),
            )
            costs[name].append(Cost(*json.loads(done.stdout.splitlines()[-1])))
    for name, own in costs.items():
        read, figures, peak = (median(column) for column in zip(*own, strict=True))
        spread = f"{min(one.seconds for one in own):.2f} to {max(one.seconds for one in own):.2f} s"
        print(f"  {name}: {read + figures:.2f} s ({spread}; read {read:.2f}, figures {figures:.2f}), {peak:.0f} MiB")
    if len(costs) > 1:
        ours, theirs = (median(one.seconds for one in own) for own in costs.values())
        print(f"  {theirs / ours:.1f} × as fast", flush=True)


def cost(path: Path) -> Cost:
    """Read a trace and compute its figures, in this process."""
    start = time.process_time()
    with without_garbage_collection():
        timeline = read_timeline(path)
        read = time.process_time()
        timeline_figures(timeline)
        computed = time.process_time()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Cost(read - start, computed - read, peak)


if __name__ == "__main__":
    main()
