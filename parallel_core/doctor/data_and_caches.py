"""Where data are read from, and whether downloads and temporary files can be written."""

import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from humanize import naturalsize

from parallel_core.doctor.finding import Diagnosis, Finding, FindingState, Section
from parallel_core.training.dataset import (
    DEBIAN,
    VARIABLE,
    DataError,
    cache_directory,
    find_fashion_mnist,
    read_directory,
)

__all__ = ["examine_caches", "examine_data"]

DOWNLOAD = "from parallel_core import load_fashion_mnist; print(load_fashion_mnist().source)"
ENOUGH_BYTES = 200 * 2**20
"""The data set takes 30 MB packed; traces and results of a comparison some more."""


def examine_data() -> Section:
    """Report where Fashion-MNIST is and whether its checksums are right; nothing is downloaded."""
    directory = find_fashion_mnist()
    state: FindingState = "fine"
    text, diagnosis = f"real, from {directory}; all four checksums are right", None
    if directory is None:
        cause = "Fashion-MNIST is not on this machine: a training downloads it, or uses synthetic images if it cannot"
        diagnosis = Diagnosis(cause, f"{shlex.quote(sys.executable)} -c {shlex.quote(DOWNLOAD)}")
        state, text = "absent", "not here"
    else:
        try:
            read_directory(directory)
        except DataError as error:
            state, text, diagnosis = "broken", f"{directory}", Diagnosis(str(error), _mend_data(directory))
    figures = {"directory": directory and str(directory)}
    return Section("Data", (Finding("Fashion-MNIST", state, text, diagnosis, figures),))


def examine_caches(environment: Mapping[str, str]) -> Section:
    """Report whether the user's cache and the folder for temporary files can be written to."""
    cache = _examine_folder("cache", cache_directory(), "XDG_CACHE_HOME")
    try:
        temporary = _examine_folder("temporary files", Path(tempfile.gettempdir()), "TMPDIR")
    except FileNotFoundError as error:
        folder = environment.get("TMPDIR", "/tmp")
        cause = f"no folder for temporary files can be written to ({error.strerror})"
        temporary = Finding("temporary files", "broken", folder, Diagnosis(cause, f"sudo chmod 1777 {folder}"))
    return Section("Caches", (cache, temporary))


def _mend_data(directory: Path) -> str:
    if os.environ.get(VARIABLE) == str(directory):
        return f"unset {VARIABLE}"
    if directory == DEBIAN:
        return "sudo apt-get install --reinstall dataset-fashion-mnist"
    return f"rm -r {shlex.quote(str(directory))}"


def _examine_folder(name: str, folder: Path, variable: str) -> Finding:
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    figures: dict[str, str | int] = {"directory": str(folder)}
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        cause = f"{existing} cannot be written to ({error.strerror}), and downloads cannot be kept"
        return Finding(name, "broken", str(folder), Diagnosis(cause, f'export {variable}="$(mktemp -d)"'), figures)
    figures["free_bytes"] = free = shutil.disk_usage(existing).free
    size = f"{naturalsize(free, binary=True)} free"
    if free >= ENOUGH_BYTES:
        return Finding(name, "fine", f"{folder}, {size}", None, figures)
    diagnosis = Diagnosis(f"the disk of {folder} is nearly full ({size})", f"df -h {shlex.quote(str(existing))}")
    return Finding(name, "doubtful", f"{folder}, {size}", diagnosis, figures)
