"""Where data are read from, and whether what is downloaded or written in between can be kept."""

import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from humanize import naturalsize

from parallel_core.doctor.finding import Diagnosis, Finding, Section
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
    """Tell where Fashion-MNIST is and check its content against its checksums; nothing is downloaded."""
    directory = find_fashion_mnist()
    if directory is None:
        cause = "Fashion-MNIST is not on this machine: a training downloads it, or makes images up where it cannot"
        command = f"{shlex.quote(sys.executable)} -c {shlex.quote(DOWNLOAD)}"
        finding = Finding("Fashion-MNIST", "absent", "not here", Diagnosis(cause, command), {"directory": None})
        return Section("Data", (finding,))
    figures = {"directory": str(directory)}
    try:
        read_directory(directory)
    except DataError as error:
        advice = Diagnosis(str(error), _mend(directory))
        return Section("Data", (Finding("Fashion-MNIST", "broken", f"{directory}", advice, figures),))
    text = f"real, from {directory}; all four checksums are right"
    return Section("Data", (Finding("Fashion-MNIST", "fine", text, None, figures),))


def examine_caches(environment: Mapping[str, str]) -> Section:
    """Tell whether the user's cache and the folder for temporary files can be written to."""
    findings = (
        _folder("cache", cache_directory(), "XDG_CACHE_HOME"),
        _temporary(environment),
    )
    return Section("Caches", findings)


def _mend(directory: Path) -> str:
    if os.environ.get(VARIABLE) == str(directory):
        return f"unset {VARIABLE}"
    if directory == DEBIAN:
        return "sudo apt-get install --reinstall dataset-fashion-mnist"
    return f"rm -r {shlex.quote(str(directory))}"


def _temporary(environment: Mapping[str, str]) -> Finding:
    try:
        return _folder("temporary files", Path(tempfile.gettempdir()), "TMPDIR")
    except FileNotFoundError as error:
        named = environment.get("TMPDIR", "/tmp")
        advice = Diagnosis(
            f"no folder for temporary files can be written to ({error.strerror})", f"sudo chmod 1777 {named}"
        )
        return Finding("temporary files", "broken", named, advice)


def _folder(name: str, folder: Path, variable: str) -> Finding:
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    figures = {"directory": str(folder)}
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        cause = f"{existing} cannot be written to ({error.strerror}), and what is downloaded cannot be kept"
        return Finding(name, "broken", str(folder), Diagnosis(cause, f'export {variable}="$(mktemp -d)"'), figures)
    free = shutil.disk_usage(existing).free
    text = f"{folder}, {naturalsize(free, binary=True)} free"
    if free < ENOUGH_BYTES:
        cause = f"the disk of {folder} is nearly full ({naturalsize(free, binary=True)} are free)"
        command = f"df -h {shlex.quote(str(existing))}"
        return Finding(name, "doubtful", text, Diagnosis(cause, command), {**figures, "free_bytes": free})
    return Finding(name, "fine", text, None, {**figures, "free_bytes": free})
