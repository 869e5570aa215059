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
from tests.parallel_core.comparison.made_up import comparison, failed, measured, parallel
from tests.parallel_core.comparison.test_storage import written
from tests.parallel_core.terminal.printed import controls

SEQUENCE = "\x1b]0;title\x07\x1b[2J\x9b31m\x7f"
MARKUP = "[red]:smile:[/]"
FOREIGN = f"{SEQUENCE}{MARKUP}end"
SHOWN = f"␛]0;title␇␛[2J\N{REPLACEMENT CHARACTER}31m␡{MARKUP}end"


def event(category: str, name: str, start: int, length: int, **more: Any) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": 1,
        "tid": 1,
        "ts": start,
        "dur": length,
        **more,
    }


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A trace of PyTorch's form, every name in which is foreign."""
    events: list[dict[str, Any]] = [
        {
            "ph": "M",
            "name": "thread_name",
            "pid": 1,
            "tid": 1,
            "args": {"name": f"thread {FOREIGN}"},
        },
        {"ph": "B", "name": f"begun {FOREIGN}", "pid": 1, "tid": 2, "ts": 0},
        event(f"category {FOREIGN}", "left out", 0, 1),
    ]
    for number in range(8):
        start, of_kernel = 100 * number, {"device": f"0{FOREIGN}", "stream": f"7{FOREIGN}"}
        called = {"correlation": number + 1}
        events += [
            event("user_annotation", f"phase {FOREIGN} {number}", start, 90),
            event("cpu_op", f"operator {FOREIGN}", start, 50),
            event("cuda_runtime", f"call {FOREIGN}", start, 5, args=called),
            event("kernel", f"k {FOREIGN}", start + 10, 60, args={**of_kernel, **called}),
        ]
    properties = [{"id": f"0{FOREIGN}", "name": f"H100 {FOREIGN}"}]
    document = {"schemaVersion": 1, "traceEvents": events, "deviceProperties": properties}
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(document))
    return path


def test_a_trace_s_names(program: RunProgram, trace: Path) -> None:
    for ranks in (1, 2):
        paths = [trace.with_name(f"{rank}.json") for rank in range(ranks)]
        for path in paths:
            path.write_bytes(trace.read_bytes())
        done = program("trace", *map(str, paths))
        assert (done.returncode, controls(done.stdout + done.stderr)) == (0, set())
        # Words of its own may stand on several lines.
        assert SHOWN in done.stdout
    printed = program("trace", str(trace), "--json", "-").stdout
    assert controls(printed) == set()
    operations = json.loads(printed)["cases"][0]["operations"]
    assert [one["name"] for one in operations] == [f"k {FOREIGN}"]


def test_a_comparison_s_names_and_reasons(program: RunProgram, tmp_path: Path) -> None:
    found = comparison(
        measured(parallel("torch"), (1.0, 1.1)), failed(parallel("mxnet"), reason=FOREIGN)
    )
    of_result = (("backend", "version"), ("data",), ("explanation",), ("cases", 0, "name"))
    results = [("cells", 0, "results", process) for process in (0, 1)]
    places = [("command",), *((*result, *place) for result in results for place in of_result)]
    text = json.dumps(written(found, *((place, FOREIGN) for place in places)))
    for folder in ("old", "new"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "comparison.json").write_text(text)
    for command in (("report", "new"), ("diff", "old", "new")):
        done = program(command[0], *(str(tmp_path / folder) for folder in command[1:]))
        assert (done.returncode, controls(done.stdout + done.stderr)) == (0, set())
    assert SHOWN in program("report", str(tmp_path / "new")).stdout


ENGINE = f"""
from backends import BackendError

class Net:
    def __init__(self, *arguments):
        raise BackendError({FOREIGN!r})
"""


def test_an_engine_s_error(tmp_path: Path) -> None:
    path = tmp_path / "engine.py"
    path.write_text(ENGINE)
    # In a separate process, where the engine becomes known by its name.
    command = [sys.executable, "-m", "parallel_core", "run", "barriers", "--backend", f"{path}:Net"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, controls(done.stderr), done.stderr.count("\n")) == (2, set(), 1)
    assert SHOWN in done.stderr
