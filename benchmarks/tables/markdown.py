"""What every table of measured numbers is made with: its file, its rows, and where the numbers come from."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.harness.findings import provenance


def read_json(path: Path) -> dict[str, Any]:
    """Read what a benchmark wrote."""
    written: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return written


def source_of(folder: Path, measured: Mapping[str, Mapping[str, Any]]) -> str:
    """Link the files that hold what was measured, and say on what it was; those measured alike stand together."""
    places: dict[str, list[str]] = {}
    for name, written in measured.items():
        linked = folder / name
        places.setdefault(provenance(written), []).append(f"[{linked.stem}]({linked})")
    return "\n" + " ".join(f"{', '.join(files)}: {place}." for place, files in places.items())
