"""What foreign files and engines say is printed as text: no terminal obeys it, and none of it is
markup.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import RunProgram
from tests.parallel_core.command_line.refused import assert_refused
from tests.parallel_core.command_line.test_command_line import run
from tests.parallel_core.compare.made_up import comparison, failed, measured, parallel
from tests.parallel_core.compare.test_storage import RESULT, written
from tests.parallel_core.terminal.printed import controls

SEQUENCE = "\x1b]0;title\x07\x1b[2J\x9b31m\x7f\u202e"
MARKUP = "[red]:smile:[/]"
FOREIGN = f"{SEQUENCE}{MARKUP}end"
UNKNOWN = "\N{REPLACEMENT CHARACTER}"
SHOWN = f"␛]0;title␇␛[2J{UNKNOWN}31m␡{UNKNOWN}{MARKUP}end"


def event(category: str, name: str, start: int, length: int, **fields: Any) -> dict[str, Any]:
    """Return an event of a trace in PyTorch's form."""
    row = {"ph": "X", "pid": 1, "tid": 1}
    return {**row, "cat": category, "name": name, "ts": start, "dur": length, **fields}


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A trace of PyTorch's form, every name in which is foreign."""
    events = [
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": FOREIGN}},
        {"ph": "B", "name": f"begun {FOREIGN}", "pid": 1, "tid": 2, "ts": 0},
        event(f"category {FOREIGN}", "left out", 0, 1),
    ]
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
    text = printed_without_controls(program, "trace", str(trace), "--json=-")
    operations = json.loads(text)["cases"][0]["operations"]
    assert [operation["name"] for operation in operations] == [f"k {FOREIGN}"]


def test_a_comparison_s_names_and_reasons_are_printed_as_text(
    program: RunProgram, tmp_path: Path
) -> None:
    compared = comparison(
        measured(parallel("torch"), (1.0,)), failed(parallel("mxnet"), reason=FOREIGN)
    )
    foreign_keys = (
        ("command",),
        (*RESULT, "backend", "version"),
        (*RESULT, "data"),
        (*RESULT, "explanation"),
        (*RESULT, "cases", 0, "name"),
    )
    document = written(compared, *((keys, FOREIGN) for keys in foreign_keys))
    (tmp_path / "comparison.json").write_text(json.dumps(document))
    folder = str(tmp_path)
    printed_without_controls(program, "diff", folder, folder)
    assert SHOWN in printed_without_controls(program, "report", folder)


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
    done = run("run", "barriers", f"--backend={path}:Net")
    assert_refused(done, SHOWN)
    assert controls(done.stderr) == set()
