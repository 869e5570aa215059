"""What `parallel-core compare` needs, and which of its cells it could measure here."""

import os
from collections.abc import Sequence
from pathlib import Path

from parallel_core.doctor.finding import Diagnosis, Finding, Section
from parallel_core.doctor.frameworks import Attempt
from parallel_core.formatting import listed

__all__ = ["COMPARED_BACKENDS", "examine_comparing"]

COMPARED_BACKENDS = ("mxnet", "torch")
"""What `compare` takes where no backend is named."""


def examine_comparing(attempts: Sequence[Attempt], folder: Path) -> Section:
    """Tell which frameworks and engines could be compared, and whether `folder` can take the results."""
    return Section("compare", (_examine_cells(attempts), _examine_results_folder(folder)))


def _examine_cells(attempts: Sequence[Attempt]) -> Finding:
    engines = {one.name: [probe.engine for probe in one.usable] for one in attempts if one.name in COMPARED_BACKENDS}
    usable = {name: found for name, found in engines.items() if found}
    figures = {"cells": usable}
    text = "; ".join(f"{name} ({listed(found)})" for name, found in usable.items())
    left_out = [name for name in COMPARED_BACKENDS if name not in usable]
    if not usable:
        return Finding("cells", "absent", "neither framework can be used: nothing to compare", None, figures)
    if left_out:
        cause = f"{listed(left_out)} cannot be used here, and the comparison would leave it out"
        command = f"parallel-core compare --backends {','.join(usable)}"
        return Finding("cells", "absent", f"{text} only", Diagnosis(cause, command), figures)
    return Finding("cells", "fine", text, None, figures)


def _examine_results_folder(folder: Path) -> Finding:
    if os.access(folder, os.W_OK):
        return Finding("results", "fine", f"{folder} takes them")
    cause = f"{folder}, the current folder, cannot be written to, and results are kept there"
    return Finding(
        "results", "doubtful", str(folder), Diagnosis(cause, 'parallel-core compare --out "$HOME/comparison"')
    )
