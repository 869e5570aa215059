"""What this machine leaves to a measurement: cores and memory, data, folders that can be written to, and ports."""

import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from time import sleep

import psutil
from humanize import naturalsize

from backends.errors import ComputationError
from backends.host import available_cores, core_numbers
from backends.installation.frameworks import Diagnosis
from backends.process_groups.addresses import free_port, listen_at
from parallel_core.doctor.finding import Finding
from parallel_core.system.formatting import percent
from parallel_core.system.machine import processor_quota, read_limits
from parallel_core.system.machine_watch import sample_machine, watched
from parallel_core.training import dataset

WATCHED_SECONDS = 0.5
"""For so long the doctor sits still and looks what other processes do."""
DOWNLOAD = "from parallel_core import load_fashion_mnist; print(load_fashion_mnist().source)"
ENOUGH_BYTES = 200 * 2**20
"""The data set takes 30 MB packed; traces and results of a comparison some more."""
LOOPBACK = "127.0.0.1"
TORCHRUN_PORT = 29500
"""torchrun's default (torchrun, `--master-port`)."""


def examine_cores() -> Finding:
    """Report the cores of the machine, those of this process, and the share of their time that a container may use."""
    machine, own, quota = os.cpu_count() or 1, available_cores(), processor_quota()
    figures = {"machine": machine, "available": own, "core_numbers": core_numbers(), "quota": quota}
    text = f"{own} of {machine} may be used" if own < machine else f"{own}"
    if quota is not None and quota < own:
        text = f"{text}, with the time of {quota:g}"
        cores = ",".join(map(str, core_numbers()[: max(1, int(quota))]))
        cause = f"a container's quota is the time of {quota:g} cores: the kernel stops {own} whenever it is used up"
        command = f"taskset --cpu-list {cores} parallel-core compare"
    elif own == 1:
        cause = "two devices on one core take turns: nothing can be seen to run at the same time"
        command = f"taskset --cpu-list 0-{machine - 1} parallel-core doctor" if machine > own else "lscpu"
    else:
        return Finding("CPU cores", "fine", text, None, figures)
    return Finding("CPU cores", "doubtful", text, Diagnosis(cause, command), figures)


def examine_load() -> Finding:
    """Report how much of the cores' time other processes take at this moment, while this process does nothing."""
    before = sample_machine()
    sleep(WATCHED_SECONDS)
    watch = watched(before, sample_machine())
    if watch.others_share is None:
        return Finding("other work", "absent", "the system does not count it", None, asdict(watch))
    text = f"other processes take {percent(watch.taken_share)} of the cores' time"
    cause = "what they take is missing from every measurement: runs repeat more, and widen their intervals"
    diagnosis = Diagnosis(cause, "top -b -n 1 -o %CPU | head -15") if watch.is_disturbed else None
    return Finding("other work", "doubtful" if diagnosis else "fine", text, diagnosis, asdict(watch))


def examine_memory() -> Finding:
    """Report the memory of the machine, or of the container, and how much of it is free."""
    memory = psutil.virtual_memory()
    limit = min([memory.total, *read_limits("memory.max")])
    figures = {"total_bytes": limit, "available_bytes": min(memory.available, limit)}
    total, free = (naturalsize(size, binary=True) for size in figures.values())
    return Finding("memory", "fine", f"{total}, {free} free", None, figures)


def examine_data() -> Finding:
    """Report where Fashion-MNIST is and whether its checksums are right; nothing is downloaded."""
    name, directory = "Fashion-MNIST", dataset.find_fashion_mnist()
    figures = {"directory": directory and str(directory)}
    if directory is None:
        cause = "Fashion-MNIST is not on this machine: a training downloads it, or uses synthetic images if it cannot"
        diagnosis = Diagnosis(cause, f"{shlex.quote(sys.executable)} -c {shlex.quote(DOWNLOAD)}")
        return Finding(name, "absent", "not here", diagnosis, figures)
    try:
        dataset.read_directory(directory)
    except dataset.DataError as error:
        command = f"rm -r {shlex.quote(str(directory))}"
        if os.environ.get(dataset.VARIABLE):
            command = f"unset {dataset.VARIABLE}"
        elif directory == dataset.DEBIAN:
            command = "sudo apt-get install --reinstall dataset-fashion-mnist"
        return Finding(name, "broken", f"{directory}", Diagnosis(str(error), command), figures)
    return Finding(name, "fine", f"real, from {directory}; all four checksums are right", None, figures)


def examine_caches(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Report whether the user's cache and the folder for temporary files can be written to."""
    yield _examine_folder("cache", dataset.cache_directory(), "XDG_CACHE_HOME")
    try:
        folder = Path(tempfile.gettempdir())
    except FileNotFoundError:
        folder = Path(environment.get("TMPDIR", "/tmp"))
    yield _examine_folder("temporary files", folder, "TMPDIR")


def _examine_folder(name: str, folder: Path, variable: str) -> Finding:
    existing = next(path for path in (folder, *folder.parents) if os.access(path, os.F_OK))
    free = shutil.disk_usage(existing).free
    figures = {"directory": str(folder), "free_bytes": free}
    text = f"{folder}, {naturalsize(free, binary=True)} free"
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        cause = f"{existing} cannot be written to ({error.strerror})"
        return Finding(name, "broken", text, Diagnosis(cause, f'export {variable}="$(mktemp -d)"'), figures)
    if free >= ENOUGH_BYTES:
        return Finding(name, "fine", text, None, figures)
    return Finding(name, "doubtful", text, Diagnosis(text, f"df -h {shlex.quote(str(existing))}"), figures)


def examine_ports(torchrun_port: int = TORCHRUN_PORT) -> Iterator[Finding]:
    """Report whether processes of a job could meet on loopback, and whether torchrun's port is free."""
    try:
        free = free_port(LOOPBACK)
    except ComputationError as error:
        diagnosis = Diagnosis(str(error), "sudo ip link set lo up")
        yield Finding("loopback", "broken", f"{LOOPBACK} cannot be used", diagnosis)
        return
    yield Finding("loopback", "fine", f"processes can listen at {LOOPBACK}")
    name, figures = "torchrun's port", {"port": torchrun_port}
    try:
        listen_at(LOOPBACK, torchrun_port).close()
        yield Finding(name, "fine", f"{torchrun_port} is free", None, figures)
    except ComputationError as error:
        diagnosis = Diagnosis(
            f"torchrun, by default, {error}",
            f"torchrun --master-port {free} --nproc-per-node 2 -m parallel_core run data-parallel --backend torch",
        )
        yield Finding(name, "doubtful", f"{torchrun_port} cannot be used", diagnosis, figures)
