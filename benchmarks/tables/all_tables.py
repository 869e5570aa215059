"""All tables of measured numbers, by the names that their blocks have."""

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path

from backends.errors import unknown
from benchmarks.tables.benchmarks import all_findings, gpu, how_fast, network, processes, variants
from benchmarks.tables.comparisons import (
    comparison,
    comparison_answer,
    comparison_differences,
    planted_faults,
    wrong_verdicts,
)
from benchmarks.tables.exercises import answer, exercises, first_run, trace

__all__ = ["TABLES", "write_table"]

TABLES: Mapping[str, Callable[..., str]] = {
    "first-run": first_run,
    "exercises": exercises,
    "answer": answer,
    "trace": trace,
    "variants": variants,
    "comparison": comparison,
    "comparison-answer": comparison_answer,
    "comparison-differences": comparison_differences,
    "wrong-verdicts": wrong_verdicts,
    "planted-faults": planted_faults,
    "findings": all_findings,
    "processes": processes,
    "network": network,
    "how-fast": how_fast,
    "gpu": gpu,
}
"""Each takes a machine's folder of results, then the words that stand after its name, and returns Markdown.

Its links are of the repository's root.
"""


def write_table(name: str, folder: Path) -> str:
    """Write a table from a machine's folder of results; words after its name choose among those of its kind.

    Raises ValueError if there is no such table, and FileNotFoundError if the file that it comes from is missing.
    """
    kind, *words = name.split()
    if kind not in TABLES:
        raise ValueError(unknown("table", kind, TABLES))
    try:
        inspect.signature(TABLES[kind]).bind(folder, *words)
    except TypeError as error:
        raise ValueError(f"the table {name!r} has not the words that {kind!r} takes: {error}") from error
    try:
        return TABLES[kind](folder, *words)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"the table {name!r} needs {error.filename}, which is not there: measure it") from error
