"""Environment variables that change how frameworks schedule, and what each of those that are set would do."""

from collections.abc import Iterator, Mapping, Sequence

import backends
from backends.host import available_cores
from backends.installation.frameworks import diagnose_environment, installation_of
from backends.installation.kernels import CORE_TYPE
from parallel_core.doctor.finding import Diagnosis, Finding, FindingState, Section, harmful_variable
from parallel_core.doctor.frameworks import Attempt

__all__ = ["examine_settings"]

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
PLACES = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")
JOB = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
BLOCKING = "CUDA_LAUNCH_BLOCKING"


def examine_settings(environment: Mapping[str, str], attempts: Sequence[Attempt]) -> Section:
    """Report what every variable that is set does, and how to unset those that do harm."""
    findings = [*_threads(environment), *_frameworks(environment, attempts), *_job(environment)]
    if CORE_TYPE in environment:
        text = f"{environment[CORE_TYPE]}: the kernels of every OpenBLAS, NumPy's too; parallel-core leaves it as it is"
        findings.append(Finding(CORE_TYPE, "fine", text, None, {"value": environment[CORE_TYPE]}))
    if environment.get(BLOCKING, "0") != "0":
        cause = f"with {BLOCKING} every kernel is waited for: programs on a GPU lose all asynchrony"
        findings.append(harmful_variable(BLOCKING, environment[BLOCKING], cause))
    return Section("Settings", tuple(findings))


def _threads(environment: Mapping[str, str]) -> Iterator[Finding]:
    for name in filter(environment.__contains__, THREADS):
        value = environment[name]
        if all(part.strip().isdigit() and int(part) > 0 for part in value.split(",")):
            text = f"{value}: the threads of each operator in other programs; parallel-core sets its own number"
            yield Finding(name, "fine", text, None, {"value": value})
        else:
            cause = f"{name}={value} is not a number of threads, and every program chooses for itself"
            yield harmful_variable(name, value, cause)
    if "OMP_NUM_THREADS" not in environment:
        text = (
            f"unset: by default MXNet would take half of the {available_cores()} cores for each operator, PyTorch all; "
            "parallel-core sets its own number"
        )
        yield Finding("OMP_NUM_THREADS", "fine", text, None, {"value": None})
    for name in filter(environment.__contains__, PLACES):
        cause = f"{name}={environment[name]} binds threads to cores, and may bind those of two devices to the same"
        yield harmful_variable(name, environment[name], cause)


def _frameworks(environment: Mapping[str, str], attempts: Sequence[Attempt]) -> Iterator[Finding]:
    installed = {attempt.name for attempt in attempts if attempt.probes}
    for framework in backends.names():
        declared = installation_of(framework)
        fatal = declared.harmful_variables(environment)
        for name, diagnosis in fatal.items():
            text = f"{environment[name]}: no program can use {framework} with it"
            state: FindingState = "broken" if framework in installed else "doubtful"
            yield Finding(name, state, text, diagnosis, {"value": environment[name]})
        if framework not in installed:
            continue
        for name, value in sorted(environment.items()):
            if name in fatal:
                continue
            if name in declared.known_variables:
                yield Finding(name, "fine", f"{value}: {declared.known_variables[name]}", None, {"value": value})
            elif name.startswith(declared.prefixes):
                cause = f"{framework} reads {name} when it is imported, and measurements here may change"
                yield harmful_variable(name, value, cause)


def _job(environment: Mapping[str, str]) -> Iterator[Finding]:
    if environment.keys() & {"RANK", "WORLD_SIZE"}:
        effect = (
            "make this process one of a job, and `run` waits for the others: they belong there only while torchrun or "
            "`parallel-core launch` runs"
        )
        yield _job_variables([name for name in JOB if name in environment], environment, effect)
    roles = sorted(name for name in environment if name.startswith(("DMLC_", "PS_")))
    if roles and not diagnose_environment("mxnet", {"DMLC_ROLE": environment.get("DMLC_ROLE", "")}):
        effect = "make MXNet one process of a job: importing it may wait for the others, or fail"
        yield _job_variables(roles, environment, effect)


def _job_variables(names: Sequence[str], environment: Mapping[str, str], effect: str) -> Finding:
    values = " ".join(f"{name}={environment[name]}" for name in names)
    diagnosis = Diagnosis(f"{values} {effect}", f"unset {' '.join(names)}")
    return Finding(names[0], "doubtful", values, diagnosis, {"value": values})
