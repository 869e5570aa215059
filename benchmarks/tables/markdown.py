"""What every table of measured numbers is made with: its file, its rows, and where the numbers come from."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness.provenance import provenance
from benchmarks.harness.targets import Finding

__all__ = ["findings_of", "read_json", "source_of", "table"]


def read_json(path: Path) -> dict[str, Any]:
    """Read what a benchmark wrote."""
    written: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return written


def findings_of(written: Mapping[str, Any]) -> dict[str, Finding]:
    """Return a benchmark's findings by their names."""
    return {one["name"]: Finding.from_json(one) for one in written["findings"]}


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], below: str) -> str:
    """Make a table, and a text below it."""
    # A bar within a cell would begin another one.
    lines = [headings, ["---"] * len(headings), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join([*(f"| {' | '.join(line)} |" for line in lines), "", below])


def source_of(folder: Path, *measured: tuple[str, Mapping[str, Any]]) -> str:
    """Link the files that hold what was measured, and say on what it was; those measured alike stand together."""
    places: dict[str, dict[str, None]] = {}
    for name, written in measured:
        linked = folder / name
        places.setdefault(provenance(written), {})[f"[{linked.stem}]({linked})"] = None
    return " ".join(f"{', '.join(files)}: {place}." for place, files in places.items())
