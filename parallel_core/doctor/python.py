"""Python, its packages compared with parallel-core's metadata, and the environment variables that change schedules."""

import platform
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from packaging.requirements import Requirement

import backends
import parallel_core
from backends.installation.frameworks import Diagnosis, installation_of
from backends.installation.kernels import CORE_TYPE
from backends.registry import installed_version
from backends.registry.entry_points import package_version, requirements
from parallel_core.doctor.finding import Finding, FindingState
from parallel_core.doctor.frameworks import Attempt

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
