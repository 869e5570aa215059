"""`run --trace` and `run --timeline`: files are written beside the result, and never at its expense."""

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from backends import Backend
from parallel_core.measurement.result import Result
from parallel_core.trace_analysis.trace_files import read_timeline
from tests.conftest import MEASURED, RunProgram
from tests.parallel_core.command_line.test_command_line import run

SMALL = ["run", "parallel", "--device-kind", "cpu", "--size", "64", "--rounds", "2"]


def test_a_run_leaves_a_trace_and_a_picture_and_tells_both_ways_of_measuring(
    framework_name: str, tmp_path: Path, require: Callable[[str], None], program: RunProgram
) -> None:
    require(framework_name)
    trace, picture = tmp_path / "trace.json.gz", tmp_path / "timeline.svg"
    # MXNet and JAX take their settings when a process imports them.
    started = program if framework_name == "torch" else run
    done = started(*SMALL, "--backend", framework_name, "--trace", str(trace), "--timeline", str(picture))
    assert done.returncode in MEASURED, done.stderr
    for text in ("parallel_speedup", "Recorded by the profiler", "Under the profiler it took"):
        assert text in done.stdout, text
    assert re.search("trace +clock +noise", done.stdout)
    # The answer comes last, and has a sentence of the trace if there is a verdict.
    answer = " ".join(done.stdout.rpartition("\nAnswer\n")[2].split())
    assert "What would change it: " in answer
    # Of so little work the profiler may take most of the time.
    told = "By the trace of “on all together” " in answer or "The trace of “on all together” says nothing" in answer
    assert told == (not answer.startswith("No verdict"))
    found = read_timeline(trace)
    assert [case.name for case in found.cases] == ["on cpu:1 alone", "on cpu:2 alone", "on all together"]
    assert found.source.startswith(f"{framework_name} ")
    assert "cpu:2 compute" in picture.read_text()
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    assert {"cpu:1", "cpu:2", "host"} <= {e["args"]["name"] for e in events if e["name"] == "process_name"}


def test_everything_is_timed_and_written_before_the_profiler_runs(
    program: RunProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "result.json"
    written: list[object] = []

    def profile_instead(_: Backend, result: Result, *__: object) -> str:
        written.append(json.loads(path.read_text()))
        assert written == [json.loads(json.dumps(result.as_json()))]
        assert all(len(case.seconds) == 2 and case.again for case in result.cases)
        return ""

    monkeypatch.setattr("parallel_core.command_line.run.one_backend.profile_and_show", profile_instead)
    monkeypatch.setattr("parallel_core.command_line.run.one_backend.check_profiler", lambda _: None)
    done = program(*SMALL, "--backend", "numpy", "--json", str(path), "--trace", str(tmp_path / "trace.json"))
    assert len(written) == 1, done.stderr
    assert json.loads(path.read_text()) == written[0]


def test_a_comparison_s_process_is_measured_even_if_it_cannot_be_profiled(program: RunProgram, tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    done = program(*SMALL, "--backend", "numpy", "--json", "-", "--trace-if-possible", str(path))
    assert done.returncode in MEASURED, done.stderr
    assert json.loads(done.stdout)["experiment"] == "parallel"
    assert "no trace: numpy has no profiler" in done.stderr
    assert not path.exists()
    assert (tmp_path / "trace.txt").read_text().startswith("numpy has no profiler")
