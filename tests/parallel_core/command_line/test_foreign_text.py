"""What foreign files and engines say is printed as text: no terminal obeys it, and none of it is
markup.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import RunProgram
from tests.parallel_core.compare.made_up import comparison, failed, measured, parallel
from tests.parallel_core.compare.test_storage import written
from tests.parallel_core.terminal.printed import controls

SEQUENCE = "\x1b]0;title\x07\x1b[2J\x9b31m\x7f\u202e"
MARKUP = "[red]:smile:[/]"
FOREIGN = f"{SEQUENCE}{MARKUP}end"
UNKNOWN = "\N{REPLACEMENT CHARACTER}"
SHOWN = f"␛]0;title␇␛[2J{UNKNOWN}31m␡{UNKNOWN}{MARKUP}end"


def event(category: str, name: str, start: int, length: int, **fields: Any) -> dict[str, Any]:
    """Return an event of a trace in PyTorch's form."""
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": 1,
        "tid": 1,
        "ts": start,
        "dur": length,
        **fields,
    }


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A trace of PyTorch's form, every name in which is foreign."""
    thread_name = {
        "ph": "M",
        "name": "thread_name",
        "pid": 1,
        "tid": 1,
        "args": {"name": f"thread {FOREIGN}"},
    }
    unended = {"ph": "B", "name": f"begun {FOREIGN}", "pid": 1, "tid": 2, "ts": 0}
    events = [thread_name, unended, event(f"category {FOREIGN}", "left out", 0, 1)]
    for number in range(8):
        start = 100 * number
        link = {"correlation": number + 1}
        on_stream = {"device": f"0{FOREIGN}", "stream": f"7{FOREIGN}", **link}
        events += [
            event("user_annotation", f"phase {FOREIGN} {number}", start, 90),
            event("cpu_op", f"operator {FOREIGN}", start, 50),
            event("cuda_runtime", f"call {FOREIGN}", start, 5, args=link),
            event("kernel", f"k {FOREIGN}", start + 10, 60, args=on_stream),
        ]
    properties = [{"id": f"0{FOREIGN}", "name": f"H100 {FOREIGN}"}]
    document = {"schemaVersion": 1, "traceEvents": events, "deviceProperties": properties}
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(document))
    return path


def printed_without_controls(program: RunProgram, *arguments: str) -> str:
    """Return what a command prints, and check that no terminal would obey it."""
    done = program(*arguments)
    assert done.returncode == 0
    assert controls(done.stdout + done.stderr) == set()
    return done.stdout


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_trace_s_names_are_printed_as_text(program: RunProgram, trace: Path, ranks: int) -> None:
    paths = [trace.with_name(f"{rank}.json") for rank in range(ranks)]
    for path in paths:
        path.write_bytes(trace.read_bytes())
    # The program's own words may stand on several lines.
    assert SHOWN in printed_without_controls(program, "trace", "--details", *map(str, paths))


def test_a_trace_s_names_are_kept_in_json(program: RunProgram, trace: Path) -> None:
    text = printed_without_controls(program, "trace", str(trace), "--json", "-")
    operations = json.loads(text)["cases"][0]["operations"]
    assert [operation["name"] for operation in operations] == [f"k {FOREIGN}"]


def test_a_comparison_s_names_and_reasons_are_printed_as_text(
    program: RunProgram, tmp_path: Path
) -> None:
    compared = comparison(
        measured(parallel("torch"), (1.0, 1.1)), failed(parallel("mxnet"), reason=FOREIGN)
    )
    foreign_keys: list[tuple[str | int, ...]] = [("command",)]
    for process in (0, 1):
        result = ("cells", 0, "results", process)
        foreign_keys += [
            (*result, "backend", "version"),
            (*result, "data"),
            (*result, "explanation"),
            (*result, "cases", 0, "name"),
        ]
    document = written(compared, *((keys, FOREIGN) for keys in foreign_keys))
    old, new = tmp_path / "old", tmp_path / "new"
    for folder in (old, new):
        folder.mkdir()
        (folder / "comparison.json").write_text(json.dumps(document))
    printed_without_controls(program, "diff", str(old), str(new))
    assert SHOWN in printed_without_controls(program, "report", str(new))


ENGINE = f"""
from backends import BackendError

class Net:
    def __init__(self, *arguments):
        raise BackendError({FOREIGN!r})
"""


def test_an_engine_s_error_is_printed_as_text(tmp_path: Path) -> None:
    path = tmp_path / "engine.py"
    path.write_text(ENGINE)
    # In a separate process, where the engine becomes known by its name.
    command = [sys.executable, "-m", "parallel_core", "run", "barriers", "--backend", f"{path}:Net"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert controls(done.stderr) == set()
    assert done.stderr.count("\n") == 1
    assert SHOWN in done.stderr
