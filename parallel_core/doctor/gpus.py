"""The machine's GPUs: as their driver lists them, and what each framework can do with them."""

import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations

from humanize import naturalsize

from backends.installation.frameworks import Diagnosis, Gpu, Gpus, diagnose, installation_of
from backends.installation.probe import reason_against
from parallel_core.doctor import Finding
from parallel_core.doctor.frameworks import Attempt

NVIDIA_SMI_SECONDS = 10.0
FIELDS = ("index", "name", "memory.total", "driver_version", "compute_cap")
DRIVER_FAILURES = {
    "Driver/library version mismatch": Diagnosis(
        "the NVIDIA driver was updated, and its old kernel module still runs", "sudo reboot"
    ),
    "couldn't communicate with the NVIDIA driver": Diagnosis(
        "the NVIDIA driver's kernel module is not loaded", "sudo modprobe nvidia"
    ),
}
"""Known messages of `nvidia-smi`."""

VISIBLE = "CUDA_VISIBLE_DEVICES"
NO_KERNEL = "no kernel image is available"
"""CUDA's message for a binary that has no machine code for a GPU."""
MXNET_GENERATIONS = range(5, 9)
"""The generations of GPUs, by compute capability, that MXNet 1.9.1 holds machine code for."""


def ask_driver() -> tuple[Gpu, ...] | Diagnosis:
    """List the machine's GPUs, also those that CUDA_VISIBLE_DEVICES hides; none if there is no `nvidia-smi`.

    Returns a diagnosis if the driver does not answer.
    """
    program = shutil.which("nvidia-smi")
    if program is None:
        return ()
    # Drivers before 510 do not know the last field.
    for fields in (FIELDS, FIELDS[:-1]):
        command = [program, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, errors="replace", timeout=NVIDIA_SMI_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return Diagnosis(f"nvidia-smi does not answer ({type(error).__name__})", "sudo reboot")
        answer = f"{done.stdout} {done.stderr}"
        if "not a valid field" not in answer:
            break
    if done.returncode == 0:
        lines = [[part.strip() for part in line.split(",")] for line in done.stdout.splitlines()]
        return tuple(_card(*line) for line in lines if len(line) == len(fields))
    if "No devices were found" in answer:
        return ()
    unknown = Diagnosis(f"nvidia-smi fails: {' '.join(answer.split())}", "nvidia-smi")
    return next((known for message, known in DRIVER_FAILURES.items() if message in answer), unknown)


def _card(index: str, name: str, mebibytes: str, driver: str, capability: str | None = None) -> Gpu:
    return Gpu(int(index), name, int(mebibytes) * 2**20 if mebibytes.isdigit() else 0, capability, driver=driver)


def examine_gpus(
    cards: Sequence[Gpu] | Diagnosis, attempts: Sequence[Attempt], environment: Mapping[str, str]
) -> Iterator[Finding]:
    """Report the GPUs that the driver lists, and those that each framework can use."""
    by_framework = {attempt.name: attempt.usable[0].gpus for attempt in attempts if attempt.usable}
    if isinstance(cards, Diagnosis):
        yield Finding("GPU driver", "broken", "does not answer", cards)
        cards = ()
    elif not cards and not any(gpus.devices for gpus in by_framework.values()):
        yield Finding("GPUs", "absent", "no GPU: the devices of all experiments are on the CPU", None, {"gpus": []})
    for card in cards:
        figures = {key: getattr(card, key) for key in ("name", "memory_bytes", "driver", "compute_capability")}
        yield Finding(f"GPU {card.index}", "fine", _describe(card), None, figures)
    for framework, gpus in by_framework.items():
        if installation_of(framework).cuda_build:
            yield from _examine_framework(framework, gpus, cards, environment.get(VISIBLE))


def _examine_framework(framework: str, gpus: Gpus, cards: Sequence[Gpu], visible: str | None) -> Iterator[Finding]:
    name = f"GPUs of {framework}"
    figures = {"cuda": gpus.cuda or None, "found": [gpu.index for gpu in gpus.devices]}
    generations = {int(card.compute_capability.split(".")[0]) for card in cards if card.compute_capability}
    if gpus.failure:
        yield Finding(name, "broken", "cannot be used", _or_stay_on_cpu(framework, gpus.failure), figures)
    elif not gpus.cuda and framework == "mxnet" and generations and not generations & {*MXNET_GENERATIONS}:
        text = "MXNet 1.9.1 cannot use GPUs of this generation"
        yield Finding(name, "absent", text, diagnose("mxnet", NO_KERNEL), figures)
    elif not gpus.cuda and cards:
        cause = f"this {framework} is a build for CPUs, and the machine has a GPU"
        diagnosis = Diagnosis(cause, installation_of(framework).cuda_build)
        yield Finding(name, "absent", "a build for CPUs", diagnosis, figures)
    elif not gpus.devices and cards:
        use = "torch.cuda.init()" if framework == "torch" else "mxnet.nd.ones(1, ctx=mxnet.gpu(0)).asnumpy()"
        cause = f"the driver lists GPUs, and {framework} finds none (the command shows its message)"
        diagnosis = Diagnosis(cause, f'{shlex.quote(sys.executable)} -c "import {framework}; {use}"')
        # CUDA ends the list at the first number that no GPU has.
        if visible is not None and visible.split(",")[0].strip() in ("", "-1"):
            cause = f"{VISIBLE}={visible} hides the GPUs from every framework"
            diagnosis = Diagnosis(cause, f"unset {VISIBLE}")
        yield Finding(name, "doubtful", "finds none", diagnosis, figures)
    for gpu in gpus.devices:
        label = f"GPU {gpu.index} of {framework}"
        if reason := reason_against(framework, gpu.index):
            known = diagnose(framework, reason) or Diagnosis(reason)
            yield Finding(label, "broken", "an addition on it fails", _or_stay_on_cpu(framework, known), figures)
        else:
            text = ", ".join(filter(None, ("an addition on it works", _describe(gpu))))
            yield Finding(label, "fine", text, None, figures)


def _or_stay_on_cpu(framework: str, failure: Diagnosis) -> Diagnosis:
    if failure.command:
        return failure
    cause = f"{failure.cause} (its cause is not known here; it runs on the CPU)"
    return Diagnosis(cause, f"parallel-core run parallel --backend {framework} --device-kind cpu")


def _describe(gpu: Gpu) -> str:
    memory = None if gpu.memory_bytes is None else naturalsize(gpu.memory_bytes, binary=True)
    driver = gpu.driver and f"driver {gpu.driver}"
    capability = gpu.compute_capability and f"compute capability {gpu.compute_capability}"
    return ", ".join(filter(None, (gpu.name, memory, driver, capability)))


def examine_transfers(attempts: Sequence[Attempt]) -> Iterator[Finding]:
    """Report whether host memory can be page-locked, and which GPUs reach each other's memory, as PyTorch sees it."""
    locking, peers = "page-locked memory", "peer access"
    gpus = next((attempt.usable[0].gpus for attempt in attempts if attempt.name == "torch" and attempt.usable), Gpus())
    if not gpus.devices:
        yield from (Finding(name, "absent", "no GPU that PyTorch can use") for name in (locking, peers))
        return
    if failure := gpus.page_locked:
        yield Finding(locking, "broken", "host memory cannot be page-locked", _or_stay_on_cpu("torch", failure))
    else:
        yield Finding(locking, "fine", "host memory can be page-locked")
    reached = {(gpu.index, peer) for gpu in gpus.devices for peer in gpu.peers or ()}
    pairs = {*permutations([gpu.index for gpu in gpus.devices], 2)}
    figures = {"pairs": [list(pair) for pair in sorted(reached)]}
    apart = len(pairs - reached)
    text = f"{apart} of {len(pairs)} ways between GPUs lead through the host's memory"
    diagnosis = Diagnosis(f"{text}, and are slower", "nvidia-smi topo -m") if apart else None
    yield Finding(peers, "doubtful" if apart else "fine" if pairs else "absent", text, diagnosis, figures)
