"""The machine's GPUs: those that the driver lists, and those that each framework can use."""

import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from humanize import naturalsize

from backends.installation.frameworks import Diagnosis, Gpu, diagnose, installation_of
from backends.installation.probe import reason_against
from backends.registry import offers
from parallel_core.doctor import Finding
from parallel_core.doctor.frameworks import Attempt, for_shell

NVIDIA_SMI_SECONDS = 10.0
FIELDS = ("index", "name", "memory.total", "driver_version", "compute_cap")
DRIVER_FAILURES = {
    "Driver/library version mismatch": Diagnosis(
        "The NVIDIA driver was updated, and its old kernel module still runs",
        "sudo reboot",
        "driver-updated",
    ),
    "couldn't communicate with the NVIDIA driver": Diagnosis(
        "The NVIDIA driver's kernel module is not loaded",
        "sudo modprobe nvidia",
        "driver-not-loaded",
    ),
}
"""The diagnoses of messages of `nvidia-smi`."""

VISIBLE = "CUDA_VISIBLE_DEVICES"
MXNET_GENERATIONS = range(5, 9)
"""The GPUs, by the first number of their compute capability, that MXNet 1.9.1 has code for."""


def ask_driver() -> tuple[Gpu, ...] | Diagnosis:
    """Return the machine's GPUs, also those that CUDA_VISIBLE_DEVICES hides.

    Without `nvidia-smi` there are none. If the driver does not answer, return a diagnosis.
    """
    program = shutil.which("nvidia-smi")
    if program is None:
        return ()
    try:
        done = _query(program, FIELDS)
        if "not a valid field" in done.stdout + done.stderr:
            # Drivers before 510 do not know the last field.
            done = _query(program, FIELDS[:-1])
    except (OSError, subprocess.TimeoutExpired) as error:
        cause = f"The NVIDIA driver does not answer ({type(error).__name__})"
        return Diagnosis(cause, "sudo reboot", "driver-silent")
    if done.returncode == 0:
        return tuple(_card(line) for line in done.stdout.splitlines() if line.count(",") >= 3)
    answer = f"{done.stdout} {done.stderr}"
    if "No devices were found" in answer:
        return ()
    for message, diagnosis in DRIVER_FAILURES.items():
        if message in answer:
            return diagnosis
    in_one_line = " ".join(answer.split())
    cause = f"The NVIDIA driver does not answer: {in_one_line}"
    return Diagnosis(cause, "nvidia-smi", "driver-silent")


def _query(program: str, fields: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    """Ask `nvidia-smi` for fields of all GPUs, a line for each GPU."""
    return subprocess.run(
        [program, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=NVIDIA_SMI_SECONDS,
        check=False,
    )


def _card(line: str) -> Gpu:
    """Return the GPU of a line of `nvidia-smi`."""
    index, name, mebibytes, driver, *capability = (value.strip() for value in line.split(","))
    memory_bytes = int(mebibytes) * 2**20 if mebibytes.isdigit() else 0
    return Gpu(int(index), name, memory_bytes, capability[0] if capability else None, driver)


def examine_gpus(
    cards: Sequence[Gpu] | Diagnosis, attempts: Sequence[Attempt], environment: Mapping[str, str]
) -> Iterator[Finding]:
    """Yield the findings on GPUs that the driver lists, and on those that frameworks can use."""
    frameworks_find_some = False
    for attempt in attempts:
        if any(probe.gpus.devices for probe in attempt.working):
            frameworks_find_some = True
    if isinstance(cards, Diagnosis):
        yield Finding("GPU driver", "broken", "does not answer", cards)
        cards = ()
    elif not cards and not frameworks_find_some:
        yield Finding("GPUs", "absent", "none: all devices are on the CPU", None, {"gpus": []})
    for card in cards:
        figures = {
            "name": card.name,
            "memory_bytes": card.memory_bytes,
            "driver": card.driver,
            "compute_capability": card.compute_capability,
        }
        yield Finding(f"GPU {card.index}", "fine", _describe(card), None, figures)
    for attempt in attempts:
        if attempt.working and installation_of(attempt.name).cuda_build:
            yield from _examine_framework(attempt, cards, environment.get(VISIBLE))


def _examine_framework(
    attempt: Attempt, cards: Sequence[Gpu], visible: str | None
) -> Iterator[Finding]:
    """Yield the findings on the GPUs of a framework that has a build for CUDA.

    `visible` is the value of CUDA_VISIBLE_DEVICES.
    """
    gpus = attempt.working[0].gpus
    name = f"GPUs of {attempt.title}"
    figures = {"cuda": gpus.cuda or None, "found": [gpu.index for gpu in gpus.devices]}
    if gpus.failure:
        diagnosis = _failure(attempt, "the GPUs", gpus.failure)
        yield Finding(name, "broken", "cannot be used", diagnosis, figures)
    elif not gpus.cuda and cards:
        yield Finding(name, "absent", "a build for CPUs", _cuda_build(attempt, cards), figures)
    elif not gpus.devices and cards:
        yield Finding(name, "doubtful", "finds none", _finds_none(attempt, visible), figures)
    for gpu in gpus.devices:
        label = f"GPU {gpu.index} of {attempt.title}"
        if reason := reason_against(attempt.name, gpu.index, attempt.python):
            failure = diagnose(attempt.name, reason) or Diagnosis(reason)
            diagnosis = _failure(attempt, "this GPU", failure)
            yield Finding(label, "broken", "an addition on it fails", diagnosis, figures)
        else:
            text = f"an addition on it works; {_describe(gpu)}"
            yield Finding(label, "fine", text, None, figures)


def _failure(attempt: Attempt, unusable: str, failure: Diagnosis) -> Diagnosis:
    """Say that a framework cannot use its GPUs, and suggest a command.

    `unusable` is "the GPUs" or "this GPU".
    """
    cause = f"{attempt.title} cannot use {unusable}: {failure.cause}"
    if not failure.command:
        command = f"parallel-core run parallel --backend {attempt.name} --device-kind cpu"
        return Diagnosis(f"{cause} (it works on the CPU)", command, failure.code)
    return for_shell(replace(failure, cause=cause), attempt.python)


def _cuda_build(attempt: Attempt, cards: Sequence[Gpu]) -> Diagnosis | None:
    """Say how to get a build for CUDA; None if that build could use none of the GPUs either."""
    generations = set()
    for card in cards:
        if card.compute_capability:
            generation, _, _ = card.compute_capability.partition(".")
            generations.add(int(generation))
    are_unknown_to_mxnet = generations and generations.isdisjoint(MXNET_GENERATIONS)
    if attempt.name == "mxnet" and are_unknown_to_mxnet:
        return None
    cause = f"This {attempt.title} is a build for CPUs, and the machine has a GPU"
    command = installation_of(attempt.name).cuda_build
    return for_shell(Diagnosis(cause, command, "build-for-cpus"), attempt.python)


def _finds_none(attempt: Attempt, visible: str | None) -> Diagnosis:
    """Say why a build for CUDA finds none of the GPUs that the driver lists."""
    # CUDA ends the list at the first number that no GPU has.
    hides_all = visible is not None and visible.split(",")[0].strip() in ("", "-1")
    if hides_all:
        cause = f"{VISIBLE}={visible} hides the GPUs from every framework"
        return Diagnosis(cause, f"unset {VISIBLE}", "gpus-hidden")
    cause = f"The driver lists GPUs, and {attempt.title} finds none (the command shows its message)"
    offer = offers().get(attempt.name)
    program = offer.finds_gpus if offer is not None else ""
    program = program or f"import {installation_of(attempt.name).module}"
    command = f'{shlex.quote(attempt.python)} -c "{program}"'
    return Diagnosis(cause, command, "no-gpus-found")


def _describe(gpu: Gpu) -> str:
    """Write a GPU's name, memory, driver and compute capability, as far as they are known."""
    parts = [gpu.name]
    if gpu.memory_bytes is not None:
        parts.append(naturalsize(gpu.memory_bytes, binary=True))
    if gpu.driver:
        parts.append(f"driver {gpu.driver}")
    if gpu.compute_capability:
        parts.append(f"compute capability {gpu.compute_capability}")
    return ", ".join(filter(None, parts))
