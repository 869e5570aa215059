"""Readers of traces are found by entry point: this package's, and those of other packages."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from backends.profiling import TraceFile, timeline_in
from parallel_core.command_line.trace import trace
from tests.backends.profiling.events import complete
from tests.backends.registry.test_loading import plug_in

TABLE = "a table of operations\nmatmul,npu:0,core,0,400\nadd,npu:0,core,500,600\n"
READER = Path(__file__).parent / "table_reader.py"
Install = Callable[[str, str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install a reader in this process: its entry point, and the code of its module."""

    def install(module: str, code: str) -> None:
        folder = tmp_path / module
        folder.mkdir()
        plug_in(folder, module, f"{module} = {module}", "parallel_core.trace_readers")
        (folder / f"{module}.py").write_text(code)
        monkeypatch.syspath_prepend(folder)
        sys.modules.pop(module, None)

    return install


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Write a trace that is no JSON."""
    path = tmp_path / "operations.csv"
    path.write_text(TABLE)
    return path


def test_a_reader_of_another_package_reads_a_format_of_its_own(
    install: Install, table: Path
) -> None:
    install("read_tables", READER.read_text())
    ended = CliRunner().invoke(trace, [str(table), "--json", "-"])
    assert ended.exit_code == 0, ended.output
    (case,) = json.loads(ended.stdout)["cases"]
    assert case["compute_seconds"] == pytest.approx(500e-9)
    assert {queue["device"] for queue in case["queues"]} == {"npu:0"}
    refused = CliRunner().invoke(trace, [str(table), "--perfetto", str(table.with_suffix(".json"))])
    assert refused.exit_code != 0


def test_a_file_that_nobody_recognises_is_refused(table: Path) -> None:
    with pytest.raises(ValueError, match="it is no JSON"):
        timeline_in(TraceFile(table))


def test_a_reader_that_cannot_be_imported_does_not_concern_other_files(
    install: Install, table: Path, tmp_path: Path
) -> None:
    install("broken", "import no_such_module")
    of_torch = tmp_path / "torch.json"
    of_torch.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [complete("aten::mm")]}))
    assert timeline_in(TraceFile(of_torch)).source == "torch"
    with pytest.raises(ValueError, match="'broken' cannot be imported"):
        timeline_in(TraceFile(table))
