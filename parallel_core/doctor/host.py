"""The state of the host: its system, other programs, environment variables, and training data."""

import os
import platform
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

from backends.installation.frameworks import Diagnosis, installation_of
from parallel_core.doctor import Finding
from parallel_core.system.formatting import percent
from parallel_core.system.machine import MachineWatch
from parallel_core.training import dataset

DATA_PACKAGE = "dataset-fashion-mnist"
"""The name of Debian's package."""

BINDS = "binds threads to cores, and may bind those of two devices to the same"
HARM: Mapping[str, str] = {
    "OMP_PROC_BIND": BINDS,
    "OMP_PLACES": BINDS,
    "GOMP_CPU_AFFINITY": BINDS,
    "KMP_AFFINITY": BINDS,
    "CUDA_LAUNCH_BLOCKING": "makes programs on a GPU wait for every kernel",
    "PORT": "is the port of every process of MXNet's ps-lite, and two on one machine cannot share "
    "it",
}
"""The harm of environment variables, by name."""
HARMLESS = {("CUDA_LAUNCH_BLOCKING", "0")}
RANK_OF_JOB = ("RANK", "WORLD_SIZE")
JOB = (*RANK_OF_JOB, "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
RANK_HARM = (
    "make this process one of a job, and `run` waits for the other processes: they belong there "
    "only "
    "while torchrun or `parallel-core launch` runs"
)
ROLE_HARM = (
    "make MXNet one process of a job: importing it may wait for the other processes, or fail"
)


def examine_system() -> Finding:
    """Return the finding on the system and the processor: whether parallel-core was tried there."""
    system, processor = platform.system(), platform.machine()
    text = f"{system} on {processor}"
    if (system, processor) == ("Linux", "x86_64"):
        return Finding("system", "fine", text)
    if system == "Darwin":
        cause = "parallel-core is written for macOS, and was tried on nobody's Mac"
    elif (system, processor) == ("Linux", "aarch64"):
        cause = "On ARM parallel-core was tried in an emulator only, for counts and not for times"
    else:
        cause = f"parallel-core was never tried on {text}"
    return Finding("system", "doubtful", text, Diagnosis(cause, code="untried"))


def examine_load(watch: MachineWatch) -> Finding:
    """Return the finding on other programs, which used cores while the frameworks were tried."""
    name, figures = "other work", asdict(watch)
    if watch.others_share is None:
        return Finding(name, "absent", "the system does not count it", None, figures)
    share = percent(watch.taken_share)
    text = f"other programs use {share} of the cores"
    if not watch.is_disturbed:
        return Finding(name, "fine", text, None, figures)
    cause = f"Other programs use {share} of the cores now: expect wide intervals"
    return Finding(name, "doubtful", text, Diagnosis(cause, code="machine-busy"), figures)


def examine_settings(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Yield findings on environment variables that harm measurements, with the commands to unset
    them.

    Variables with which a framework cannot be imported are reported as a failure of the framework.
    """
    for name, harm in HARM.items():
        if name in environment and (name, environment[name]) not in HARMLESS:
            yield _harmful([name], harm, environment)
    if any(name in environment for name in RANK_OF_JOB):
        yield _harmful([name for name in JOB if name in environment], RANK_HARM, environment)
    # Variables of the program `ps` begin with PS_ too.
    prefixes = ("DMLC_", "PS_") if "DMLC_ROLE" in environment else ("DMLC_",)
    roles = sorted(name for name in environment if name.startswith(prefixes))
    if roles and not installation_of("mxnet").harmful_variables(environment):
        yield _harmful(roles, ROLE_HARM, environment)


def _harmful(names: Sequence[str], harm: str, environment: Mapping[str, str]) -> Finding:
    """Return the finding on harmful variables, with the command to unset them."""
    values = " ".join(f"{name}={environment[name]}" for name in names)
    diagnosis = Diagnosis(f"{values} {harm}", f"unset {' '.join(names)}", "variables")
    return Finding(names[0], "doubtful", values, diagnosis, {"value": values})


def examine_data() -> Finding:
    """Return the finding on the place and the checksums of Fashion-MNIST; download nothing."""
    name, directory = "Fashion-MNIST", dataset.find_fashion_mnist()
    figures = {"directory": directory and str(directory)}
    if directory is None:
        text = "not here: a training downloads it, or uses synthetic images if it cannot"
        command = f"apt-get install {DATA_PACKAGE}"
        diagnosis = Diagnosis(f"{name} is not here", command, "data-absent")
        return Finding(name, "absent", text, diagnosis, figures)
    try:
        dataset.read_directory(directory)
    except dataset.DataError as error:
        if os.environ.get(dataset.VARIABLE):
            command = f"unset {dataset.VARIABLE}"
        elif directory == dataset.DEBIAN:
            command = f"apt-get install --reinstall {DATA_PACKAGE}"
        else:
            command = f"rm -r {shlex.quote(str(directory))}"
        diagnosis = Diagnosis(f"{name} cannot be used: {error}", command, "data-damaged")
        return Finding(name, "broken", f"{directory}", diagnosis, figures)
    text = f"{directory}; all four checksums are right"
    return Finding(name, "fine", text, None, figures)
