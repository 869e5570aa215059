"""GPUs as frameworks and the driver list them, by stand-ins: most machines have none."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from backends.installation.frameworks import Diagnosis, Gpu, Gpus, install_command
from backends.installation.probe import Probe
from backends.torch import CUDA_12_TORCH
from parallel_core.doctor import Finding
from parallel_core.doctor import gpus as doctor_gpus
from parallel_core.doctor.frameworks import Attempt, for_shell
from parallel_core.doctor.gpus import ask_driver, examine_gpus
from tests.parallel_core.doctor.findings import FINE, by_name, cause, code

CARD = Gpu(0, "NVIDIA A100", 40 * 2**30, "8.0", driver="550.54")
HOPPER = Gpu(0, "NVIDIA H100", 80 * 2**30, "9.0", driver="550.54")
NO_CODE = "its binary holds no code for this GPU: no kernel image is available"


def on_gpus(framework: str, gpus: Gpus) -> Attempt:
    """Return an attempt with a framework that works and sees these GPUs."""
    return Attempt(framework, (Probe(framework, "async", "1", gpus),))


def examined(
    cards: Sequence[Gpu], framework: str, gpus: Gpus, environment: dict[str, str]
) -> list[Finding]:
    """Return what is found of the driver's cards, and of the GPUs that a framework sees."""
    return list(examine_gpus(cards, [on_gpus(framework, gpus)], environment))


@pytest.mark.parametrize(
    ("reason", "expected_code"),
    [(NO_CODE, "no-code-for-gpu"), ("the process died of SIGSEGV", "unknown")],
)
def test_a_gpu_that_cannot_compute_says_why(
    monkeypatch: pytest.MonkeyPatch, reason: str, expected_code: str
) -> None:
    def reason_against(framework: str, index: int, *_: object) -> str:
        return reason if (framework, index) == ("torch", 1) else ""

    monkeypatch.setattr(doctor_gpus, "reason_against", reason_against)
    gpus = Gpus("CUDA 12.6", (Gpu(0, "a GPU", 1, "9.0"), Gpu(1, "a GPU", 1, "9.0")))
    working, broken = examined((), "torch", gpus, {})
    assert working.state == "fine"
    assert broken.state == "broken"
    assert code(broken) == expected_code
    assert expected_code != "unknown" or reason in cause(broken)


def test_a_card_is_told_with_memory_driver_and_capability(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_gpus, "reason_against", lambda *_: "")
    gpus = Gpus("CUDA 12.6", (Gpu(0, CARD.name, 2**30, "8.0"),))
    card, usable = examined((CARD,), "torch", gpus, {})
    assert card.text == "NVIDIA A100, 40.0 GiB, driver 550.54, compute capability 8.0"
    assert card.figures.keys() == {"name", "memory_bytes", "driver", "compute_capability"}
    assert usable.text == "an addition on it works; NVIDIA A100, 1.0 GiB, compute capability 8.0"


ON_CPU = "parallel-core run parallel --backend {} --device-kind cpu"
VISIBLE = "CUDA_VISIBLE_DEVICES"
INITIALISED = f'{shlex.quote(sys.executable)} -c "import torch; torch.cuda.init()"'
TORCH_FOR_CUDA = for_shell(Diagnosis("", CUDA_12_TORCH)).command
REPLACED = f"pip uninstall --yes mxnet && {install_command('mxnet-cu112')}"
MXNET_FOR_CUDA = for_shell(Diagnosis("", REPLACED)).command
CUDA = Gpus("CUDA 12.6")
NEW = Gpus("CUDA 12.6", failure=Diagnosis("something new"))
KNOWN = Gpus("CUDA 12.6", failure=Diagnosis("known", "mend it"))


@pytest.mark.parametrize(
    ("cards", "framework", "gpus", "environment", "state", "command"),
    [
        ([], "torch", Gpus(), {}, "absent", None),
        # A CPU build is told what could use the GPU.
        ([CARD], "torch", Gpus(), {}, "absent", TORCH_FOR_CUDA),
        ([CARD], "mxnet", Gpus(), {}, "absent", MXNET_FOR_CUDA),
        # No build of MXNet could use this one.
        ([HOPPER], "mxnet", Gpus(), {}, "absent", None),
        ([CARD], "torch", CUDA, {VISIBLE: "-1"}, "doubtful", f"unset {VISIBLE}"),
        ([CARD], "torch", CUDA, {VISIBLE: ""}, "doubtful", f"unset {VISIBLE}"),
        ([CARD], "torch", CUDA, {VISIBLE: "0,-1"}, "doubtful", INITIALISED),
        ([CARD], "torch", CUDA, {}, "doubtful", INITIALISED),
        ([CARD], "torch", NEW, {}, "broken", ON_CPU.format("torch")),
        ([CARD], "torch", KNOWN, {}, "broken", "mend it"),
    ],
)
def test_what_a_framework_makes_of_the_gpus(
    cards: list[Gpu],
    framework: str,
    gpus: Gpus,
    environment: dict[str, str],
    state: str,
    command: str | None,
) -> None:
    findings = examined(cards, framework, gpus, environment)
    *of_cards, of_framework = by_name(findings).values()
    assert of_cards == [FINE] * len(cards)
    assert of_framework == (state, command)
    if gpus.failure is not None:
        assert gpus.failure.cause in cause(findings[-1])


FIELD = (
    'case "$1" in *compute_cap*) echo "Field \\"compute_cap\\" is not a valid field to '
    'query."; exit 2;; esac; '
)
TWO = "echo '0, NVIDIA A100, 40960, 550.54, 8.0'; echo '1, NVIDIA A100, [N/A], 550.54, 8.0'"


@pytest.mark.parametrize(
    ("script", "answer"),
    [
        (TWO, (CARD, Gpu(1, "NVIDIA A100", 0, "8.0", driver="550.54"))),
        # An old driver does not tell the capability.
        (
            FIELD + "echo '0, Tesla K80, 11441, 450.80'",
            (Gpu(0, "Tesla K80", 11441 * 2**20, None, driver="450.80"),),
        ),
        ('echo "NVML: Driver/library version mismatch"; exit 9', "sudo reboot"),
        ('echo "couldn\'t communicate with the NVIDIA driver."; exit 9', "sudo modprobe nvidia"),
        ('echo "something else"; exit 9', "nvidia-smi"),
        ('echo "No devices were found"; exit 6', ()),
        (None, ()),
    ],
)
def test_the_driver_s_answer_is_read(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: str | None,
    answer: tuple[Gpu, ...] | str,
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin" if script else "")
    path = tmp_path / "nvidia-smi"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    cards = ask_driver()
    assert (cards.command if isinstance(cards, Diagnosis) else cards) == answer
