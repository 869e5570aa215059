"""The documents that are kept in `expected/`, each made anew by a command from a stored input.

Of `trace`, `report`, `diff` and `lab check` the values are kept, of `run`, `compare` and `profile`
the keys and types: what those measure differs each time.
"""

import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from click.testing import CliRunner

from parallel_core.command_line import cli
from parallel_core.compare.results import CellResults
from parallel_core.compare.storage import RESULT, read_comparison
from parallel_core.labs import grading
from parallel_core.measurement.result import Case
from tests.golden.refusals import refusals
from tests.tree import ROOT

EXPECTED = Path(__file__).parent / "expected"
COMPARISON = ROOT / "benchmarks/results/epyc-2-cores"
TRACES = ROOT / "tests/parallel_core/traces/stored"
RECORDED = ROOT / "tests/parallel_core/traces/profile/stored"
DIGITS = 5
"""Significant digits of a number: the last ones differ between versions of NumPy."""
LAB_LIMITS = {"PROGRAMS": 20, "BUDGET": 0.2}
"""How many random programs a lab's engine runs here, and for how many seconds it is measured."""
TYPES = {
    bool: "boolean",
    int: "number",
    float: "number",
    str: "string",
    type(None): "null",
    list: "empty",
    dict: "empty",
}
PROGRAM_OF_TWO_RANKS = """
import gzip, json, os, sys
from pathlib import Path

folder = Path(json.loads(os.environ["PARALLEL_CORE_PROFILE"])["folder"])
for rank, trace in enumerate(sys.argv[1:]):
    (folder / f"{rank}.json").write_bytes(gzip.decompress(Path(trace).read_bytes()))
    report = {"pid": rank, "framework": "torch", "rank": rank, "steps_recorded": 2}
    (folder / f"{rank}.report").write_text(json.dumps({**report, "trace": f"{rank}.json"}))
"""
"""Leaves stored traces behind, as the recorder does in a program of a framework."""


def output_of(*arguments: str | Path) -> str:
    """Run a command in this process and return what it wrote to standard output."""
    runner = CliRunner(env={"COLUMNS": "100"})
    done = runner.invoke(cli, [str(argument) for argument in arguments])
    assert isinstance(done.exception, SystemExit | None), done.exception
    return done.stdout.replace(f"{ROOT}/", "")


def in_lines(document: Any) -> str:
    """Return a document as JSON with rounded numbers, in which a row of a table is one line."""
    text = json.dumps(rounded(document), indent=1, ensure_ascii=False)
    # A list or object without another one inside.
    innermost = re.compile(r"[\[{][^\[\]{}]*[\]}]")
    return innermost.sub(lambda match: " ".join(match[0].split()), text) + "\n"


def rounded(value: Any) -> Any:
    """Return a value of JSON with few digits in its numbers."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, list):
        return [rounded(item) for item in value]
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    return value


def keys_and_types(document: Any) -> str:
    """Return a line for each key of a document, with the types of its values."""
    types_of: dict[str, set[str]] = {}
    for path, type_name in leaves(document):
        types_of.setdefault(path, set()).add(type_name)
    return "".join(f"{path}: {' | '.join(sorted(types_of[path]))}\n" for path in types_of)


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Iterate over all values inside a value of JSON: their paths of keys, and their types."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from leaves(item, f"{path}.{key}".removeprefix("."))
    elif isinstance(value, list) and value:
        for item in value:
            yield from leaves(item, f"{path}[]")
    else:
        yield path, TYPES[type(value)]


def trace_text(name: str, *options: str) -> str:
    return output_of("trace", TRACES / name, *options)


def trace_json(name: str) -> str:
    return in_lines(json.loads(output_of("trace", TRACES / name, "--json", "-")))


def ranks_json(name: str) -> str:
    """Return the summary of a job's ranks: each rank's figures are as if it were alone."""
    document = json.loads(output_of("trace", TRACES / name, "--json", "-"))
    return in_lines(document["summary"])


def report_text() -> str:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / RESULT).symlink_to(COMPARISON / RESULT)
        return output_of("report", folder).replace(folder, "FOLDER")


def slower(results: CellResults) -> CellResults:
    """Return results in which all that was timed took a quarter longer."""

    def slower_case(case: Case) -> Case:
        longer = {
            field.name: tuple(1.25 * seconds for seconds in getattr(case, field.name))
            for field in fields(Case)
            if field.name.endswith("seconds")
        }
        return replace(case, **longer)

    slower_results = [
        replace(result, cases=tuple(slower_case(case) for case in result.cases))
        for result in results.results
    ]
    return replace(results, results=tuple(slower_results))


def diff(*options: str) -> str:
    """Compare two experiments with themselves, but PyTorch is slower, and a cell is lost."""
    stored = read_comparison(COMPARISON)
    cells = [*stored.of("overlap"), *stored.of("data-parallel")]
    changed_cells = [
        slower(results) if results.cell.backend == "torch" else results for results in cells[:-1]
    ]
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent)
        for name, its_cells in (("old", cells), ("new", changed_cells)):
            document = replace(stored, cells=tuple(its_cells)).as_json()
            (folder / name).write_text(json.dumps(document))
        return output_of("diff", folder / "old", folder / "new", *options)


def diff_json() -> str:
    return in_lines(json.loads(diff("--json", "-")))


def lab_json() -> str:
    """Return how the first lab's skeleton is graded, which solves half of it."""
    with (
        tempfile.TemporaryDirectory() as parent,
        mock.patch.multiple(grading, **LAB_LIMITS),
        # A variable holds the engine's file, for the processes that load it.
        mock.patch.dict(os.environ),
    ):
        folder = Path(parent) / "queue"
        output_of("lab", "start", "queue", "--dir", folder)
        document = json.loads(output_of("lab", "check", folder, "--seed", "1", "--json", "-"))
    for step in document["steps"]:
        step["program"], _, _ = step["program"].partition("\n")
    return in_lines(document)


def stored_comparison() -> dict[str, Any]:
    """Return the stored comparison as `compare --json` writes it today."""
    document: dict[str, Any] = json.loads(json.dumps(read_comparison(COMPARISON).as_json()))
    return document


def compare_keys() -> str:
    document = stored_comparison()
    for cell in document["cells"]:
        del cell["results"]
    return keys_and_types(document)


def run_keys() -> str:
    cells = stored_comparison()["cells"]
    return keys_and_types([result for cell in cells for result in cell["results"]])


def profile_keys() -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "all.json"
        traces = sorted((TRACES / "two_processes").iterdir())
        program = (sys.executable, "-c", PROGRAM_OF_TWO_RANKS, *traces)
        output_of("profile", "--output", folder, "--json", path, "--", *program)
        document = json.loads(path.read_text())
    # Which figures of the machine are null, and what its load may explain, depends on it.
    del document["load"], document["unhidden"]
    return keys_and_types(document)


def diff_of_recordings() -> str:
    one_bucket, several = (RECORDED / f"ddp-{name}.json.gz" for name in ("one-bucket", "buckets"))
    return output_of("diff", one_bucket, several)


def trace_tables() -> str:
    return trace_text("two_processes", "--exchanges") + output_of("trace", "--figures")


DOCUMENTS: Mapping[str, Callable[[], str]] = {
    **{
        f"trace-{name.partition('/')[2].partition('.')[0] or name}.txt": partial(trace_text, name)
        for name in ("not_hidden/late_flat.json.gz", "linked/ddp.json.gz", "two_gpus")
    },
    "trace-tables.txt": trace_tables,
    "trace-stream_wait.json": partial(trace_json, "linked/stream_wait.json.gz"),
    "trace-no_no_sync.json": partial(trace_json, "not_hidden/no_no_sync.json.gz"),
    "trace-two_gpus.json": partial(ranks_json, "two_gpus"),
    "report.txt": report_text,
    "diff.txt": lambda: diff() + diff_of_recordings(),
    "diff.json": diff_json,
    "lab-check.json": lab_json,
    "refusals.txt": refusals,
    "run.keys": run_keys,
    "compare.keys": compare_keys,
    "profile.keys": profile_keys,
}
"""What makes each file of `expected/` anew."""
