"""What this machine leaves to a measurement, and its Python.

That is cores and memory, data, folders that can be written to, and ports; Python, its packages compared with
parallel-core's metadata, and the environment variables that change schedules.
"""

import os
import platform
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from time import sleep

import psutil
from humanize import naturalsize
from packaging.requirements import Requirement

import backends
import parallel_core
from backends.errors import ComputationError
from backends.host import available_cores, core_numbers
from backends.installation.frameworks import Diagnosis, installation_of
from backends.installation.kernels import CORE_TYPE
from backends.process_groups.addresses import free_port, listen_at
from backends.registry.loading import installed_version, package_version, requirements
from parallel_core.doctor import Finding, FindingState
from parallel_core.doctor.frameworks import Attempt
from parallel_core.system.formatting import percent
from parallel_core.system.machine import processor_quota, read_limits, sample_machine, watched
from parallel_core.training import dataset

WATCHED_SECONDS = 0.5
"""For so long the doctor sits still and looks what other processes do."""
DOWNLOAD = "from parallel_core import load_fashion_mnist; print(load_fashion_mnist().source)"
ENOUGH_BYTES = 200 * 2**20
"""The data set takes 30 MB packed; traces and results of a comparison some more."""
LOOPBACK = "127.0.0.1"
TORCHRUN_PORT = 29500
"""torchrun's default (torchrun, `--master-port`)."""

BARE_PIP = re.compile(r"(^|&& )pip ")
PACKAGE = "parallel-core"

COUNTS, ANYTHING, NOTHING = r"\s*0*[1-9]\d*\s*(,\s*0*[1-9]\d*\s*)*", r"(?s:.*)", r"(?!)"
VARIABLES: Mapping[Sequence[str], tuple[str, str, str]] = {
    ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"): (
        COUNTS,
        "the threads of each operator in other programs; parallel-core sets its own number",
        "is not a number of threads, and every program chooses for itself",
    ),
    ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"): (
        NOTHING,
        "",
        "binds threads to cores, and may bind those of two devices to the same",
    ),
    (CORE_TYPE,): (ANYTHING, "the kernels of every OpenBLAS, NumPy's too; parallel-core leaves it as it is", ""),
    ("CUDA_LAUNCH_BLOCKING",): ("0", "kernels are queued", "makes programs on a GPU wait for every kernel"),
    ("PORT",): (NOTHING, "", "is the port of every process of MXNet's ps-lite, and two on one machine cannot share it"),
}
"""What values do no harm, what they do, and what other values do."""
JOB = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
RANKS_EFFECT = (
    "make this process one of a job, and `run` waits for the other processes: they belong there only while torchrun or "
    "`parallel-core launch` runs"
)
ROLES_EFFECT = "make MXNet one process of a job: importing it may wait for the other processes, or fail"


def examine_python() -> Iterator[Finding]:
    """Report the version of Python, its executable and its virtual environment."""
    # Conda's environments have a separate Python, which this folder shows.
    inside = sys.prefix != sys.base_prefix or (Path(sys.prefix) / "conda-meta").is_dir()
    figures = {
        "version": platform.python_version(),
        "executable": sys.executable,
        "environment": sys.prefix if inside else None,
    }
    text = f"{platform.python_implementation()} {platform.python_version()}: {sys.executable}"
    yield Finding("interpreter", "fine", text, None, figures)
    shared = "none: its packages are shared by all programs of this Python"
    yield Finding("environment", "fine", sys.prefix if inside else shared)


def for_this_python(diagnosis: Diagnosis) -> Diagnosis:
    """Replace a bare `pip` by the one of this Python, if the shell would find another."""
    pip = shutil.which("pip")
    if pip is not None and Path(pip).parent == Path(sys.executable).parent:
        return diagnosis
    own = f"{shlex.quote(sys.executable)} -m pip "
    return replace(diagnosis, command=BARE_PIP.sub(lambda match: match[1] + own, diagnosis.command))


def examine_packages() -> Iterator[Finding]:
    """Compare the installed packages with those that parallel-core requires."""
    folder, own_version = str(Path(parallel_core.__file__).parent), package_version()
    yield Finding(PACKAGE, "fine", f"{own_version} in {folder}", None, {"version": own_version, "path": folder})
    required = [Requirement(line) for line in requirements()]
    base = [one for one in required if one.marker is None or one.marker.evaluate({"extra": ""})]
    installed = {one.name: installed_version(one.name) for one in base}
    wrong = [one for one in base if (have := installed[one.name]) is None or not one.specifier.contains(have, True)]
    name = "required packages"
    if not wrong:
        yield Finding(name, "fine", f"{len(installed)}, in versions that can be used", None, installed)
        return
    text = ", ".join(f"{one.name} {installed[one.name] or 'is not installed'}" for one in wrong)
    # Without its marker.
    needed = " ".join(shlex.quote(str(one).partition(";")[0].strip()) for one in wrong)
    diagnosis = Diagnosis(f"{PACKAGE} requires {needed}", f"pip install {needed}")
    yield Finding(name, "broken", text, diagnosis, installed)


def examine_settings(environment: Mapping[str, str], attempts: Sequence[Attempt]) -> Iterator[Finding]:
    """Report what every variable that is set does, and how to unset those that do harm."""
    for names, (harmless, effect, harm) in VARIABLES.items():
        for name in filter(environment.__contains__, names):
            value = environment[name]
            if re.fullmatch(harmless, value, re.ASCII):
                yield Finding(name, "fine", f"{value}: {effect}", None, {"value": value})
            else:
                yield _harmful(name, value, f"{name}={value} {harm}")
    installed = {attempt.name for attempt in attempts if attempt.probes}
    for framework in backends.names():
        yield from _variables_of(framework, framework in installed, environment)
    ranks = [name for name in JOB if name in environment] if environment.keys() & {*JOB[:2]} else []
    prefixes = ("DMLC_", "PS_") if "DMLC_ROLE" in environment else ("DMLC_",)
    roles = sorted(name for name in environment if name.startswith(prefixes))
    if installation_of("mxnet").harmful_variables({"DMLC_ROLE": environment.get("DMLC_ROLE", "")}):
        roles = []
    for names, effect in ((ranks, RANKS_EFFECT), (roles, ROLES_EFFECT)):
        if names:
            values = " ".join(f"{name}={environment[name]}" for name in names)
            diagnosis = Diagnosis(f"{values} {effect}", f"unset {' '.join(names)}")
            yield Finding(names[0], "doubtful", values, diagnosis, {"value": values})


def _variables_of(framework: str, is_installed: bool, environment: Mapping[str, str]) -> Iterator[Finding]:
    declared = installation_of(framework)
    fatal = declared.harmful_variables(environment)
    for name, diagnosis in fatal.items():
        text = f"{environment[name]}: no program can use {framework} with it"
        state: FindingState = "broken" if is_installed else "doubtful"
        yield Finding(name, state, text, diagnosis, {"value": environment[name]})
    for name in sorted(environment.keys() - fatal.keys()) if is_installed else ():
        value = environment[name]
        if name in declared.known_variables:
            yield Finding(name, "fine", f"{value}: {declared.known_variables[name]}", None, {"value": value})
        elif name.startswith(declared.prefixes):
            cause = f"{framework} reads {name} when it is imported, and measurements here may change"
            yield _harmful(name, value, cause)


def _harmful(name: str, value: str, cause: str) -> Finding:
    return Finding(name, "doubtful", value, Diagnosis(cause, f"unset {name}"), {"value": value})


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
