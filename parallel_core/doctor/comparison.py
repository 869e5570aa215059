"""What `parallel-core compare` needs, and which of its cells it could measure here."""

import os
from collections.abc import Sequence
from pathlib import Path

from parallel_core.doctor.finding import Diagnosis, Finding, Section
from parallel_core.doctor.frameworks import REFERENCE, Attempt
from parallel_core.system.formatting import listed

__all__ = ["examine_comparing"]

COMPARED_BACKENDS = ("mxnet", "torch")
"""The backends that `compare` takes by default."""


def examine_comparing(attempts: Sequence[Attempt], folder: Path) -> Section:
    """Report which frameworks and engines could be compared, and whether the results can be written to `folder`."""
    return Section("compare", (_examine_cells(attempts), _examine_results_folder(folder)))


def _examine_cells(attempts: Sequence[Attempt]) -> Finding:
    usable = {
        attempt.name: [probe.engine for probe in attempt.usable]
        for attempt in attempts
        if attempt.usable and attempt.name != REFERENCE
    }
    engines = {name: own for name, own in usable.items() if name in COMPARED_BACKENDS} or usable
    figures = {"cells": engines}
    if not engines:
        return Finding("cells", "absent", "no framework can be used: nothing to compare", None, figures)
    text = "; ".join(f"{name} ({listed(own)})" for name, own in engines.items())
    left_out = [name for name in COMPARED_BACKENDS if name not in engines]
    if not left_out:
        return Finding("cells", "fine", text, None, figures)
    cause = f"{listed(left_out)} cannot be used here, so a comparison is of {listed([*engines])} alone"
    command = f"parallel-core compare --backends {','.join(engines)}"
    return Finding("cells", "absent", f"{text} only", Diagnosis(cause, command), figures)


def _examine_results_folder(folder: Path) -> Finding:
    if os.access(folder, os.W_OK):
        return Finding("results", "fine", f"{folder} is writable")
    cause = f"{folder}, the current folder, cannot be written to, and results are kept there"
    diagnosis = Diagnosis(cause, 'parallel-core compare --out "$HOME/comparison"')
    return Finding("results", "doubtful", str(folder), diagnosis)
