"""Timelines from files: our own, and what the frameworks' profilers wrote without us."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from backends.profiling import Timeline, mxnet_profiler, perfetto, torch_profiler
from backends.profiling.slices import Trace, read_trace
from parallel_core.errors import RequestError

__all__ = ["read_timeline"]


def read_timeline(path: Path) -> Timeline:
    """Read a trace of ours, MXNet's or PyTorch's, plain or compressed; what was wrong with the file is in the notes.

    Raises RequestError where the file cannot be read, or is nobody's of these.
    """
    try:
        trace = read_trace(path)
    except OSError as error:
        raise RequestError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise RequestError(str(error)) from error
    try:
        timeline = _reader(trace)(trace)
    except ValueError as error:
        raise RequestError(f"{path} cannot be used: {error}") from error
    if not timeline.spans:
        raise RequestError(f"{path} cannot be used: it holds nothing that ran on a device, or was launched")
    return replace(timeline, notes=tuple(dict.fromkeys((*timeline.notes, *trace.problems))))


def _reader(trace: Trace) -> Callable[[Trace], Timeline]:
    if perfetto.OWN_KEY in trace.properties:
        return perfetto.timeline_of
    if torch_profiler.is_from_torch(trace):
        return torch_profiler.timeline_of
    if mxnet_profiler.is_from_mxnet(trace):
        return mxnet_profiler.timeline_of
    raise ValueError("neither torch.profiler nor mx.profiler nor parallel-core wrote it")
