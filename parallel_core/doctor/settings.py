"""Environment variables that change how frameworks schedule, and what each of those that are set would do."""

from collections.abc import Iterator, Mapping, Sequence

from backends.host import available_cores
from backends.installation.known_failures import diagnose_environment
from parallel_core.doctor.finding import Diagnosis, Finding, Section
from parallel_core.doctor.frameworks import Attempt

__all__ = ["examine_settings"]

OWN = {
    "MXNET_ENGINE_TYPE": "which engine MXNet takes",
    "MXNET_CPU_WORKER_NTHREADS": "how many workers serve a device's queue",
    "MXNET_CPU_TEMP_COPY": "how many pieces of scratch memory all devices share",
    "MXNET_EXEC_BULK_EXEC_TRAIN": "whether a backward pass is one operator",
}
"""What parallel-core sets itself before it imports MXNet: other programs alone are changed by what is set here."""
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
PLACES = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")
JOB = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
)
BLOCKING = "CUDA_LAUNCH_BLOCKING"


def examine_settings(environment: Mapping[str, str], attempts: Sequence[Attempt]) -> Section:
    """Tell of every variable that is set what it does, and of those that do harm how to be rid of them."""
    findings = [*_threads(environment), *_mxnet(environment, attempts), *_job(environment)]
    if environment.get(BLOCKING, "0") != "0":
        cause = f"with {BLOCKING} every kernel is waited for: programs on a GPU lose all asynchrony"
        findings.append(_set(BLOCKING, environment, cause))
    return Section("Settings", tuple(findings))


def _threads(environment: Mapping[str, str]) -> Iterator[Finding]:
    for name in THREADS:
        value = environment.get(name)
        if value is None:
            continue
        if all(part.strip().isdigit() and int(part) > 0 for part in value.split(",")):
            text = f"{value}: so many threads for each operator of other programs; parallel-core sets its own number"
            yield Finding(name, "fine", text, None, {"value": value})
        else:
            yield _set(
                name, environment, f"{name}={value} is no number of threads, and every program chooses for itself"
            )
    if "OMP_NUM_THREADS" not in environment:
        cores = available_cores()
        text = (
            f"unset: by itself MXNet would take half of the {cores} cores for each operator, PyTorch all; "
            "parallel-core sets its own number"
        )
        yield Finding("OMP_NUM_THREADS", "fine", text, None, {"value": None})
    for name in PLACES:
        if name in environment:
            cause = f"{name}={environment[name]} binds threads to cores, and may bind those of two devices to the same"
            yield _set(name, environment, cause)


def _mxnet(environment: Mapping[str, str], attempts: Sequence[Attempt]) -> Iterator[Finding]:
    installed = any(attempt.name == "mxnet" and attempt.probes for attempt in attempts)
    wrong = diagnose_environment("mxnet", environment)
    for explanation in wrong:
        # It ends or blocks any program that imports MXNet.
        name = explanation.cause.split("=")[0]
        text = f"{environment[name]}: no program can use MXNet with it"
        yield Finding(name, "broken" if installed else "doubtful", text, explanation, {"value": environment[name]})
    told = {explanation.cause.split("=")[0] for explanation in wrong}
    for name in sorted(environment):
        if not name.startswith("MXNET_") or name in told:
            continue
        value = environment[name]
        if name in OWN:
            text = f"{value}: {OWN[name]}, in other programs; parallel-core sets its own"
            yield Finding(name, "fine", text, None, {"value": value})
        else:
            yield _set(
                name, environment, f"MXNet reads {name} when it is imported, and what it measures here may change"
            )


def _job(environment: Mapping[str, str]) -> Iterator[Finding]:
    if any(name in environment for name in ("RANK", "WORLD_SIZE")):
        found = [name for name in JOB if name in environment]
        values = " ".join(f"{name}={environment[name]}" for name in found)
        cause = (
            f"{values} make this process one of a job, and `run` waits for the others: they belong there only "
            "while torchrun or `parallel-core launch` runs"
        )
        yield Finding(found[0], "doubtful", values, Diagnosis(cause, f"unset {' '.join(found)}"), {"value": values})
    roles = sorted(name for name in environment if name.startswith(("DMLC_", "PS_")))
    if roles and not diagnose_environment("mxnet", {"DMLC_ROLE": environment.get("DMLC_ROLE", "")}):
        values = " ".join(f"{name}={environment[name]}" for name in roles)
        cause = f"{values} make MXNet one process of a job: importing it may wait for the others, or fail"
        yield Finding(roles[0], "doubtful", values, Diagnosis(cause, f"unset {' '.join(roles)}"), {"value": values})


def _set(name: str, environment: Mapping[str, str], cause: str) -> Finding:
    return Finding(name, "doubtful", environment[name], Diagnosis(cause, f"unset {name}"), {"value": environment[name]})
