"""`parallel-core trace`: any profiler's file as figures and as a picture; one line for a file that is none."""

import gzip
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from backends.profiling import HOST_DEVICE, Span, Timeline, Window
from parallel_core.errors import RequestError
from parallel_core.trace_analysis.trace_files import read_timeline, write_trace_file

OURS = Timeline(
    "torch 2.13.0, async engine",
    (
        Span("launch matmul", "host", HOST_DEVICE, "Python", 0.0, 0.1),
        Span("matmul", "compute", "cpu:1", "compute", 0.1, 0.9, 0.0, "aten::mm"),
        Span("copy", "copy", "cpu:1", "copy", 0.5, 1.0, 0.0, "aten::copy_"),
    ),
    (Window("run and copy", 0.0, 1.0),),
    ("The profiler of this test is a person.",),
)

# As the profilers write them, in short.
TORCH = {
    "schemaVersion": 1,
    "traceEvents": [
        {"ph": "M", "name": "process_name", "ts": 4422258079249.593, "pid": 666, "tid": 0, "args": {"name": "python"}},
        {
            "ph": "X",
            "cat": "cpu_op",
            "name": "aten::mm",
            "pid": 666,
            "tid": 666,
            "ts": 4422258114130.047,
            "dur": 108.431,
        },
        {
            "ph": "X",
            "cat": "cpu_op",
            "name": "aten::copy_",
            "pid": 666,
            "tid": 666,
            "ts": 4422258114300.5,
            "dur": 50.25,
        },
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


def trace(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "parallel_core", "trace", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "COLUMNS": "200"},
        check=False,
    )


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_a_trace_of_ours_becomes_figures_and_a_picture(tmp_path: Path, name: str) -> None:
    path, picture = tmp_path / name, tmp_path / "picture.svg"
    write_trace_file(OURS, path)
    done = trace(path, "--timeline", picture)
    assert (done.returncode, done.stderr) == (0, "")
    for told in ("torch 2.13.0, async engine: 3 spans", "compute", "copy", *OURS.notes, str(picture)):
        assert told in done.stdout
    assert "<svg" in picture.read_text()


@pytest.mark.parametrize(("document", "operator"), [(TORCH, "aten::mm"), (MXNET, "_np_dot")], ids=["torch", "mxnet"])
def test_a_profiler_s_own_trace_is_known_by_what_it_holds(
    tmp_path: Path, document: dict[str, Any], operator: str
) -> None:
    path = tmp_path / "anything"
    path.write_bytes(gzip.compress(json.dumps(document).encode()))
    found = read_timeline(path)
    assert operator in [span.operator for span in found.spans]
    done = trace(path)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_was_wrong_with_a_file_is_a_note(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    write_trace_file(OURS, path)
    path.write_bytes(path.read_bytes()[: path.read_bytes().index(b'"copy","cat"')])
    done = trace(path)
    assert done.returncode == 0
    assert "2 spans" in done.stdout
    assert "it was cut off" in done.stdout


def unwritten(path: Path) -> None:
    path.unlink(missing_ok=True)


def folder(path: Path) -> None:
    path.mkdir()


NO_TIMELINES: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (unwritten, "No such file"),
    "a folder": (folder, "directory"),
    "empty": (lambda path: path.write_text(""), "it is empty"),
    "prose": (lambda path: path.write_text("Traceback:\n"), "it is no JSON"),
    "a result": (lambda path: path.write_text('{"schema": 1}'), "no Chrome trace"),
    "another program's": (
        lambda path: path.write_text('[{"ph": "X", "name": "a", "cat": "b", "ts": 1, "dur": 1}]'),
        "none of the profilers known here wrote it (known for mxnet, torch)",
    ),
    "nothing that ran": (
        lambda path: path.write_text(
            '{"schemaVersion": 1, "traceEvents": [{"ph": "X", "name": "a", "cat": "Trace", "ts": 1, "dur": 1}]}'
        ),
        "nothing that ran",
    ),
}


@pytest.mark.parametrize(("make", "told"), NO_TIMELINES.values(), ids=NO_TIMELINES)
def test_a_file_that_is_no_timeline_is_refused(tmp_path: Path, make: Callable[[Path], object], told: str) -> None:
    path = tmp_path / "trace.json"
    make(path)
    with pytest.raises(RequestError, match=re.escape(told)):
        read_timeline(path)


def test_a_refusal_is_one_line_and_status_2(tmp_path: Path) -> None:
    done = trace(tmp_path / "none.json")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("parallel-core: cannot read ")


def test_a_picture_of_no_known_kind_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    done = trace(tmp_path / "none.json", "--timeline", tmp_path / "picture.txt")
    assert done.returncode == 2
    assert "names no kind of picture" in done.stderr


def test_the_figures_in_json_have_standard_output_to_themselves(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    write_trace_file(OURS, path)
    done = trace(path, "--json", "-")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    (case,) = told["cases"]
    assert (told["source"], case["case"]) == (OURS.source, "run and copy")
    assert case["hidden_share"] == pytest.approx(0.8)
    assert "critical path" in done.stderr
