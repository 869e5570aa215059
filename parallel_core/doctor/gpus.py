"""The machine's GPUs: what their driver tells, and what each framework can do with them."""

import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from humanize import naturalsize

from backends.installation.gpu_probe import reason_against
from backends.installation.gpus import Gpu, Gpus, InstallationFailure
from backends.installation.known_failures import CUDA_12_TORCH, diagnose
from parallel_core.doctor.finding import Diagnosis, Finding, Section
from parallel_core.doctor.frameworks import Attempt

__all__ = ["Card", "Cards", "ask_driver", "examine_gpus", "examine_transfers"]


@dataclass(frozen=True)
class Card:
    """One GPU as its driver sees it. `compute_capability` is None where the driver is too old to tell."""

    index: int
    name: str
    memory_bytes: int
    driver: str
    compute_capability: str | None


@dataclass(frozen=True)
class Cards:
    """All GPUs of the machine; `failure` is why the driver does not answer, None where there is none to ask."""

    found: tuple[Card, ...] = ()
    failure: Diagnosis | None = None


VISIBLE = "CUDA_VISIBLE_DEVICES"


NO_KERNEL = "no kernel image is available"


NO_CODE = "holds no code for this GPU"
"""What CUDA says of a GPU that a binary has no machine code for, and what `gpu_probe` makes of it."""


MXNET_CAPABILITIES = (5, 8)
"""The first and the last generation of GPUs that MXNet 1.9.1 holds machine code for."""


CUDA_BUILD = {
    "torch": CUDA_12_TORCH,
    "mxnet": "pip uninstall --yes mxnet && pip install 'parallel-core[mxnet-cu112]'",
}


def examine_gpus(cards: Cards, attempts: Sequence[Attempt], environment: Mapping[str, str]) -> Iterator[Finding]:
    """Tell the GPUs of the driver, and of each framework that works those it can use."""
    seen = {attempt.name: attempt.usable[0].gpus for attempt in attempts if attempt.usable}
    if cards.failure is not None:
        yield Finding("GPU driver", "broken", "does not answer", cards.failure)
    elif not cards.found and not any(gpus.found for gpus in seen.values()):
        yield Finding("GPUs", "absent", "no GPU: the devices of all experiments are on the CPU", None, {"gpus": []})
    for card in cards.found:
        text = f"{card.name}, {naturalsize(card.memory_bytes, binary=True)}, driver {card.driver}"
        capability = f", compute capability {card.compute_capability}" if card.compute_capability else ""
        figures = {
            "name": card.name,
            "memory_bytes": card.memory_bytes,
            "driver": card.driver,
            "compute_capability": card.compute_capability,
        }
        yield Finding(f"GPU {card.index}", "fine", text + capability, None, figures)
    for framework, gpus in seen.items():
        if framework in CUDA_BUILD:
            yield from _of_framework(framework, gpus, cards.found, environment)


def examine_transfers(attempts: Sequence[Attempt]) -> Section:
    """Tell whether host memory can be page-locked, and which GPUs reach each other's memory: PyTorch was asked."""
    gpus = next((attempt.usable[0].gpus for attempt in attempts if attempt.name == "torch" and attempt.usable), Gpus())
    if not gpus.found:
        text = "no GPU that PyTorch can use"
        return Section("Transfers", tuple(Finding(n, "absent", text) for n in ("page-locked memory", "peer access")))
    locked = Finding("page-locked memory", "fine", "host memory can be page-locked")
    if gpus.page_locked is not None:
        advice = gpus.page_locked.diagnosis or _unknown("torch", gpus.page_locked)
        locked = Finding("page-locked memory", "broken", "host memory cannot be page-locked", advice)
    return Section("Transfers", (locked, _peers(gpus.found)))


def _of_framework(
    framework: str, gpus: Gpus, cards: Sequence[Card], environment: Mapping[str, str]
) -> Iterator[Finding]:
    name = f"GPUs of {framework}"
    figures = {"cuda": gpus.cuda or None, "found": [gpu.index for gpu in gpus.found]}
    if gpus.failure is not None:
        advice = gpus.failure.diagnosis or _unknown(framework, gpus.failure)
        yield Finding(name, "broken", "cannot be used", advice, figures)
    elif not gpus.cuda and cards:
        yield _without_cuda(framework, cards, figures)
    elif not gpus.found and cards:
        yield _hidden(name, framework, environment, figures)
    for gpu in gpus.found:
        label = f"GPU {gpu.index} of {framework}"
        if reason := reason_against(framework, gpu.index):
            said = NO_KERNEL if NO_CODE in reason else reason
            advice = diagnose(framework, said) or _unknown(framework, InstallationFailure(reason))
            yield Finding(label, "broken", "an addition on it fails", advice, figures)
        else:
            yield Finding(label, "fine", _described(gpu), None, figures)


def _without_cuda(framework: str, cards: Sequence[Card], figures: Mapping[str, object]) -> Finding:
    name = f"GPUs of {framework}"
    generations = [int(card.compute_capability.split(".")[0]) for card in cards if card.compute_capability]
    first, last = MXNET_CAPABILITIES
    if framework == "mxnet" and generations and not any(first <= one <= last for one in generations):
        why = diagnose("mxnet", NO_KERNEL)
        return Finding(name, "absent", "MXNet 1.9.1 cannot use GPUs of this generation", why, figures)
    cause = f"this {framework} is a build for CPUs, and the machine has a GPU"
    return Finding(name, "absent", "a build for CPUs", Diagnosis(cause, CUDA_BUILD[framework]), figures)


def _hidden(name: str, framework: str, environment: Mapping[str, str], figures: Mapping[str, object]) -> Finding:
    if VISIBLE in environment:
        advice = Diagnosis(f"{VISIBLE}={environment[VISIBLE]} hides the GPUs from every framework", f"unset {VISIBLE}")
    else:
        shown = "torch.cuda.init()" if framework == "torch" else "mxnet.nd.ones(1, ctx=mxnet.gpu(0)).asnumpy()"
        cause = f"the driver knows GPUs, and {framework} finds none (the command shows what it says)"
        advice = Diagnosis(cause, f'python -c "import {framework}; {shown}"')
    return Finding(name, "doubtful", "finds none", advice, figures)


def _peers(found: Sequence[Gpu]) -> Finding:
    pairs = [(gpu.index, other.index) for gpu in found for other in found if other is not gpu]
    reached = [(gpu.index, peer) for gpu in found for peer in gpu.peers or ()]
    figures = {"pairs": [list(pair) for pair in reached]}
    if not pairs:
        return Finding("peer access", "absent", "one GPU has no peer", None, figures)
    apart = [pair for pair in pairs if pair not in reached]
    if not apart:
        return Finding("peer access", "fine", "every GPU reaches every other's memory", None, figures)
    cause = f"{len(apart)} of {len(pairs)} ways between GPUs lead through the host's memory, and are slower"
    return Finding("peer access", "doubtful", cause, Diagnosis(cause, "nvidia-smi topo -m"), figures)


def _described(gpu: Gpu) -> str:
    memory = None if gpu.memory_bytes is None else naturalsize(gpu.memory_bytes, binary=True)
    capability = None if gpu.compute_capability is None else f"compute capability {gpu.compute_capability}"
    return ", ".join(part for part in ("an addition on it works", gpu.name, memory, capability) if part)


def _unknown(framework: str, failure: InstallationFailure) -> Diagnosis:
    cause = f"{failure.reason} (its cause is not known here; it runs on the CPU)"
    return Diagnosis(cause, f"parallel-core run parallel --backend {framework} --device-kind cpu")


SECONDS = 10.0


FIELDS = ("index", "name", "memory.total", "driver_version", "compute_cap")


MEBIBYTE = 2**20


FAILURES = (
    (
        "Driver/library version mismatch",
        "the NVIDIA driver was updated, and its old kernel module still runs",
        "sudo reboot",
    ),
    (
        "couldn't communicate with the NVIDIA driver",
        "the NVIDIA driver's kernel module is not loaded",
        "sudo modprobe nvidia",
    ),
)


def ask_driver() -> Cards:
    """List the machine's GPUs, also those that CUDA_VISIBLE_DEVICES hides; none where there is no `nvidia-smi`."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return Cards()
    # Drivers before 510 do not know the last field.
    for fields in (FIELDS, FIELDS[:-1]):
        command = [program, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, errors="replace", timeout=SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return Cards(failure=Diagnosis(f"nvidia-smi does not answer ({type(error).__name__})", "sudo reboot"))
        said = f"{done.stdout} {done.stderr}"
        if "not a valid field" not in said:
            break
    if done.returncode == 0:
        return Cards(tuple(_card(line) for line in done.stdout.splitlines() if line.count(",") == len(fields) - 1))
    if "No devices were found" in said:
        return Cards()
    for phrase, cause, command_line in FAILURES:
        if phrase in said:
            return Cards(failure=Diagnosis(cause, command_line))
    return Cards(failure=Diagnosis(f"nvidia-smi fails: {' '.join(said.split())}", "nvidia-smi"))


def _card(line: str) -> Card:
    index, name, memory, driver, *capability = (part.strip() for part in line.split(","))
    megabytes = int(memory) if memory.isdigit() else 0
    return Card(int(index), name, megabytes * MEBIBYTE, driver, capability[0] if capability else None)
