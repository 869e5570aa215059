"""GPUs as frameworks and driver list them: both are stand-ins, since there is no GPU here."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from backends.installation.gpus import Gpu, Gpus, InstallationFailure
from backends.installation.probe import Probe
from backends.torch.installation import CUDA_12_TORCH
from parallel_core.doctor import gpus as doctor_gpus
from parallel_core.doctor.finding import Diagnosis, Finding
from parallel_core.doctor.frameworks import Attempt
from parallel_core.doctor.gpus import Card, ask_driver, examine_gpus, examine_transfers

CARD = Card(0, "NVIDIA A100", 40 * 2**30, "550.54", "8.0")
HOPPER = Card(0, "NVIDIA H100", 80 * 2**30, "550.54", "9.0")
NO_CODE = "its compute capability is 9.0: its binary holds no code for this GPU"


@pytest.fixture(autouse=True)
def additions(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, int], str]:
    """Why additions fail, by framework and GPU, in place of processes that add two numbers there."""
    reasons: dict[tuple[str, int], str] = {}
    monkeypatch.setattr(doctor_gpus, "reason_against", lambda *where: reasons.get(where, ""))
    return reasons


@pytest.mark.parametrize(
    ("framework", "reason", "cause"),
    [
        ("torch", NO_CODE, "holds no machine code for this GPU"),
        ("mxnet", NO_CODE, "compute capability 5.0 to 8.6"),
        ("mxnet", "CUDA driver version is insufficient for CUDA runtime version", "older than CUDA 11"),
        ("torch", "the process died of SIGSEGV", "the process died of SIGSEGV"),
    ],
)
def test_a_gpu_that_cannot_compute_says_why(
    additions: dict[tuple[str, int], str], framework: str, reason: str, cause: str
) -> None:
    additions[framework, 1] = reason
    found = tuple(Gpu(index, "a GPU", 1, "9.0") for index in range(2))
    first, second = examined((), framework, Gpus("CUDA 12.6", found))
    assert (first.state, second.state) == ("fine", "broken")
    assert second.diagnosis is not None
    assert cause in second.diagnosis.cause


def test_memory_that_cannot_be_page_locked() -> None:
    gpus = Gpus("CUDA 12.6", (Gpu(0, "a GPU", 1, "8.0"),), page_locked=InstallationFailure("OS call failed"))
    locked, peers = examine_transfers([attempt("torch", gpus)]).findings
    assert (locked.state, peers.state) == ("broken", "absent")
    assert locked.diagnosis is not None
    assert "OS call failed" in locked.diagnosis.cause


def attempt(framework: str, gpus: Gpus) -> Attempt:
    return Attempt(framework, ((framework, "1"),), (Probe(framework, "async", "1", gpus),))


def examined(
    cards: Sequence[Card], framework: str, gpus: Gpus, environment: dict[str, str] | None = None
) -> list[Finding]:
    return list(examine_gpus(cards, [attempt(framework, gpus)], environment or {}))


def test_without_a_gpu_that_is_said_and_nothing_is_wrong() -> None:
    (finding,) = examined((), "torch", Gpus())
    assert (finding.state, finding.diagnosis) == ("absent", None)


def test_a_card_is_told_with_memory_driver_and_capability() -> None:
    card, usable = examined((CARD,), "torch", Gpus("CUDA 12.6", (Gpu(0, CARD.name, 2**30, "8.0"),)))
    assert card.text == "NVIDIA A100, 40.0 GiB, driver 550.54, compute capability 8.0"
    assert usable.text == "an addition on it works, NVIDIA A100, 1.0 GiB, compute capability 8.0"


@pytest.mark.parametrize(
    ("card", "framework", "command"),
    [
        (CARD, "torch", CUDA_12_TORCH),
        (CARD, "mxnet", "pip uninstall --yes mxnet && pip install 'parallel-core[mxnet-cu112]'"),
        (HOPPER, "mxnet", "parallel-core run parallel --backend mxnet --device-kind cpu"),
    ],
)
def test_a_cpu_build_beside_a_gpu_is_told_what_could_use_it(card: Card, framework: str, command: str) -> None:
    finding = examined((card,), framework, Gpus())[-1]
    assert finding.state == "absent"
    assert finding.diagnosis is not None
    assert finding.diagnosis.command == command


def test_hidden_gpus_are_found_out() -> None:
    finding = examined((CARD,), "torch", Gpus("CUDA 12.6"), {"CUDA_VISIBLE_DEVICES": "-1"})[-1]
    assert finding.state == "doubtful"
    assert finding.diagnosis is not None
    assert finding.diagnosis.command == "unset CUDA_VISIBLE_DEVICES"


def test_a_framework_s_failure_is_broken() -> None:
    finding = examined((CARD,), "torch", Gpus("CUDA 13.0", failure=InstallationFailure("something new")))[-1]
    assert finding.state == "broken"
    assert finding.diagnosis is not None
    assert "something new" in finding.diagnosis.cause


@pytest.mark.parametrize(("peers", "state"), [(((1,), (0,)), "fine"), (((), ()), "doubtful"), (((1,), ()), "doubtful")])
def test_gpus_that_do_not_reach_each_other(peers: tuple[tuple[int, ...], ...], state: str) -> None:
    found = tuple(Gpu(index, "a GPU", 1, "8.0", peers=reached) for index, reached in enumerate(peers))
    assert examine_transfers([attempt("torch", Gpus("CUDA 12.6", found))]).findings[1].state == state


def program(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put an `nvidia-smi` on the path that is this shell script."""
    path = folder / "nvidia-smi"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_the_driver_s_answer_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(
        tmp_path, monkeypatch, "echo '0, NVIDIA A100, 40960, 550.54, 8.0'; echo '1, NVIDIA A100, [N/A], 550.54, 8.0'"
    )
    assert ask_driver() == (CARD, Card(1, "NVIDIA A100", 0, "550.54", "8.0"))


def test_an_old_driver_does_not_tell_the_capability(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = (
        'case "$1" in *compute_cap*) echo "Field \\"compute_cap\\" is not a valid field to query."; exit 2;; esac; '
        "echo '0, Tesla K80, 11441, 450.80'"
    )
    program(tmp_path, monkeypatch, answer)
    assert ask_driver() == (Card(0, "Tesla K80", 11441 * 2**20, "450.80", None),)


@pytest.mark.parametrize(
    ("said", "command"),
    [
        ("Failed to initialize NVML: Driver/library version mismatch", "sudo reboot"),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", "sudo modprobe nvidia"),
        ("something else", "nvidia-smi"),
    ],
)
def test_a_driver_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, command: str
) -> None:
    program(tmp_path, monkeypatch, f'echo "{said}"; exit 9')
    diagnosis = ask_driver()
    assert isinstance(diagnosis, Diagnosis)
    assert diagnosis.command == command


def test_a_machine_without_devices_or_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, monkeypatch, 'echo "No devices were found"; exit 6')
    assert ask_driver() == ()
    monkeypatch.setenv("PATH", "")
    assert ask_driver() == ()
