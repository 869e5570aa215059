"""Timelines from files: the profiler is recognised by what its file holds, and other files are refused."""

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from parallel_core.system.errors import RequestError
from parallel_core.trace_analysis.trace_files import read_timeline

# As the profilers write them, in short.
TORCH = {
    "schemaVersion": 1,
    "traceEvents": [
        {"ph": "M", "name": "process_name", "ts": 4422258079249.593, "pid": 666, "tid": 0, "args": {"name": "python"}},
        *(
            {"ph": "X", "cat": "cpu_op", "name": name, "pid": 666, "tid": 666, "ts": start, "dur": length}
            for name, start, length in (
                ("aten::mm", 4422258114130.047, 108.431),
                ("aten::copy_", 4422258114300.5, 50.25),
            )
        ),
    ],
    "traceName": "/home/somebody/trace.json",
}
MXNET = {
    "traceEvents": [
        {"ph": "M", "args": {"name": "cpu/0"}, "pid": 0, "name": "process_name"},
        {"ph": "M", "args": {"name": "cpu/1"}, "pid": 1, "name": "process_name"},
        *(
            {"name": "_np_dot", "cat": "operator", "ph": phase, "ts": time, "pid": 1, "tid": 10051307376349735870}
            for phase, time in (("B", 1795279713356264), ("E", 1795279713358200))
        ),
    ],
    "displayTimeUnit": "ms",
}


@pytest.mark.parametrize(("document", "operator"), [(TORCH, "aten::mm"), (MXNET, "_np_dot")], ids=["torch", "mxnet"])
def test_a_profiler_s_own_trace_is_recognised_by_what_it_holds(
    tmp_path: Path, document: dict[str, Any], operator: str
) -> None:
    path = tmp_path / "anything"
    path.write_bytes(gzip.compress(json.dumps(document).encode()))
    assert operator in [span.operator for span in read_timeline(path).spans]


def event(category: str) -> str:
    return f'{{"ph": "X", "name": "a", "cat": "{category}", "ts": 1, "dur": 1}}'


NO_TIMELINES: dict[str, tuple[str | None, str]] = {
    "missing": (None, "No such file"),
    "a result": ('{"schema": 1}', "it holds no events"),
    "another program's": (f"[{event('b')}]", "none of the profilers known here wrote it (known for jax, mxnet, torch)"),
    "nothing that ran": (f'{{"schemaVersion": 1, "traceEvents": [{event("Trace")}]}}', "nothing that ran"),
}


def test_steps_that_mxnet_s_profiler_marks_are_annotations(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    step = {"name": "ProfilerStep#3", "cat": "event", "pid": 9, "tid": 7}
    marks = [{**step, "ph": phase, "ts": 1795279713356000 + time} for phase, time in (("B", 0), ("E", 3000))]
    path.write_text(json.dumps({"traceEvents": [*MXNET["traceEvents"], *marks]}))
    (found,) = read_timeline(path).annotations
    assert (found.name, found.end - found.start) == ("ProfilerStep#3", 3_000_000)


@pytest.mark.parametrize(("text", "message"), NO_TIMELINES.values(), ids=NO_TIMELINES)
def test_a_file_that_is_no_timeline_is_refused(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path / "trace.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(RequestError, match=re.escape(message)) as refused:
        read_timeline(path)
    assert str(path) in str(refused.value)
