"""Python, its packages held against parallel-core's metadata, and the environment variables that change schedules."""

import platform
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from packaging.requirements import Requirement

import backends
import parallel_core
from backends.host import available_cores
from backends.installation.frameworks import Diagnosis, installation_of
from backends.installation.kernels import CORE_TYPE
from parallel_core.doctor.finding import Finding, FindingState, harmful_variable
from parallel_core.doctor.frameworks import Attempt

BARE_PIP = re.compile(r"(^|&& )pip ")
PACKAGE = "parallel-core"

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
PLACES = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")
JOB = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
BLOCKING = "CUDA_LAUNCH_BLOCKING"


def examine_python() -> Iterator[Finding]:
    """Report the version of Python, its executable and its virtual environment."""
    # Conda's environments have a Python of their own, which this folder shows.
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
    folder, own_version = str(Path(parallel_core.__file__).parent), version(PACKAGE)
    yield Finding(PACKAGE, "fine", f"{own_version} in {folder}", None, {"version": own_version, "path": folder})
    required = [Requirement(line) for line in requires(PACKAGE) or ()]
    base = [one for one in required if one.marker is None or one.marker.evaluate({"extra": ""})]
    yield _compare("required packages", base)


def _compare(name: str, required: Sequence[Requirement]) -> Finding:
    installed = {one.name: _version(one.name) for one in required}
    missing = [one for one in required if installed[one.name] is None]
    wrong = [one for one in required if (have := installed[one.name]) and not one.specifier.contains(have, True)]
    if not missing and not wrong:
        return Finding(name, "fine", f"{len(installed)}, in versions that can be used", None, installed)
    text = ", ".join(
        [f"{one.name} is not installed" for one in missing]
        + [f"{one.name} {installed[one.name]} is not {one.specifier}" for one in wrong]
    )
    # Without its marker.
    needed = " ".join(shlex.quote(str(one).partition(";")[0].strip()) for one in (*missing, *wrong))
    cause = f"{PACKAGE} requires other versions: {text}" if wrong else text
    diagnosis = Diagnosis(cause, f"pip install {needed}")
    return Finding(name, "broken", text, diagnosis, installed)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def examine_settings(environment: Mapping[str, str], attempts: Sequence[Attempt]) -> Iterator[Finding]:
    """Report what every variable that is set does, and how to unset those that do harm."""
    yield from _threads(environment)
    installed = {attempt.name for attempt in attempts if attempt.probes}
    for framework in backends.names():
        yield from _variables_of(framework, framework in installed, environment)
    if environment.keys() & {"RANK", "WORLD_SIZE"}:
        effect = (
            "make this process one of a job, and `run` waits for the others: they belong there only while torchrun or "
            "`parallel-core launch` runs"
        )
        yield _job([name for name in JOB if name in environment], environment, effect)
    roles = sorted(name for name in environment if name.startswith(("DMLC_", "PS_")))
    role = {"DMLC_ROLE": environment.get("DMLC_ROLE", "")}
    if roles and not installation_of("mxnet").harmful_variables(role):
        effect = "make MXNet one process of a job: importing it may wait for the others, or fail"
        yield _job(roles, environment, effect)
    if CORE_TYPE in environment:
        text = f"{environment[CORE_TYPE]}: the kernels of every OpenBLAS, NumPy's too; parallel-core leaves it as it is"
        yield Finding(CORE_TYPE, "fine", text, None, {"value": environment[CORE_TYPE]})
    if environment.get(BLOCKING, "0") != "0":
        cause = f"with {BLOCKING} every kernel is waited for: programs on a GPU lose all asynchrony"
        yield harmful_variable(BLOCKING, environment[BLOCKING], cause)


def _threads(environment: Mapping[str, str]) -> Iterator[Finding]:
    for name in filter(environment.__contains__, THREADS):
        value = environment[name]
        if all(part.strip().isdigit() and int(part) > 0 for part in value.split(",")):
            text = f"{value}: the threads of each operator in other programs; parallel-core sets its own number"
            yield Finding(name, "fine", text, None, {"value": value})
        else:
            cause = f"{name}={value} is not a number of threads, and every program chooses for itself"
            yield harmful_variable(name, value, cause)
    if THREADS[0] not in environment:
        text = (
            f"unset: by default MXNet would take half of the {available_cores()} cores for each operator, PyTorch all; "
            "parallel-core sets its own number"
        )
        yield Finding(THREADS[0], "fine", text, None, {"value": None})
    for name in filter(environment.__contains__, PLACES):
        cause = f"{name}={environment[name]} binds threads to cores, and may bind those of two devices to the same"
        yield harmful_variable(name, environment[name], cause)


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
            yield harmful_variable(name, value, cause)


def _job(names: Sequence[str], environment: Mapping[str, str], effect: str) -> Finding:
    values = " ".join(f"{name}={environment[name]}" for name in names)
    diagnosis = Diagnosis(f"{values} {effect}", f"unset {' '.join(names)}")
    return Finding(names[0], "doubtful", values, diagnosis, {"value": values})
