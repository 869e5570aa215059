"""Frameworks that fail, or block, are tried in a process of their own; what follows for kernels, comparisons and GPUs.

GPUs as frameworks and driver list them are stand-ins, since there is no GPU here.
"""

import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from backends.installation.frameworks import Diagnosis, Gpu, Gpus, install_command
from backends.installation.kernels import Kernels, Product
from backends.installation.probe import Probe
from backends.torch import CUDA_12_TORCH
from parallel_core.doctor import Finding
from parallel_core.doctor import gpus as doctor_gpus
from parallel_core.doctor.frameworks import (
    Attempt,
    examine_comparing,
    examine_frameworks,
    examine_kernels,
    try_backend,
)
from parallel_core.doctor.gpus import ask_driver, examine_gpus, examine_transfers
from tests.parallel_core.doctor.findings import FINE, MXNET, TORCH, cause, found
from tests.parallel_core.doctor.stub_frameworks import BLOCKS, DIES, MakeStub, make_plug_in

DEADLINE = 60.0


def examine(framework: str, deadline: float = DEADLINE) -> Finding:
    """Try one framework and return the doctor's first finding about it."""
    return next(examine_frameworks([try_backend(framework, deadline)]))


NO_ENGINE = "F engine.cc:48: Check failed: Cannot find Engine NaivEngine\n"
UNKNOWN = "raise ImportError('it went wrong\\nin two lines')"


# The messages that are known: tests/backends/installation/test_frameworks.py.
@pytest.mark.parametrize(
    ("framework", "code", "causes", "command"),
    [
        # What is not known comes with a command that shows it.
        ("mxnet", UNKNOWN, ("it went wrong in two lines",), "backends.load('\"'\"'mxnet'\"'\"'"),
        ("mxnet", DIES.format(said=NO_ENGINE), ("MXNET_ENGINE_TYPE=NaivEngine is none",), "unset MXNET_ENGINE_TYPE"),
        ("torch", DIES.format(said="MKL FATAL ERROR\n"), (signal.SIGABRT.name, "MKL FATAL ERROR"), "backends.load("),
    ],
)
def test_a_framework_that_fails_is_explained(
    make_stub: MakeStub, framework: str, code: str, causes: tuple[str, ...], command: str
) -> None:
    make_stub(framework, code)
    findings = list(examine_frameworks([try_backend(framework, DEADLINE)]))
    # Once, and not for each engine.
    assert [(one.name, one.state) for one in findings] == [(framework, "broken"), ("frameworks", "broken")]
    assert all(said in cause(findings[0]) for said in causes)
    assert command in str(found(findings)[framework][1])


def test_an_import_that_blocks_is_ended_at_the_deadline(make_stub: MakeStub, monkeypatch: pytest.MonkeyPatch) -> None:
    make_stub("mxnet", BLOCKS)
    attempt = try_backend("mxnet", 0.5)
    # What blocks once would block again.
    assert len(attempt.probes) == 1
    finding, _ = examine_frameworks([attempt])
    assert "gave no result within 0.5 s and was killed" in cause(finding)
    assert "faulthandler.dump_traceback_later" in str(found([finding])["mxnet"][1])
    # A role would make the real one block, too.
    monkeypatch.setenv("DMLC_ROLE", "server")
    finding = examine("mxnet", 0.5)
    assert "DMLC_ROLE=server" in cause(finding)
    assert str(found([finding])["mxnet"][1]).startswith("unset DMLC_ROLE ")


def test_what_is_not_installed_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert found([examine("torch")]) == {"torch": ("absent", install_command("torch"))}


@pytest.mark.parametrize(("module", "text"), [("", "; its sync engine works"), ("own", " from own, built for CPUs; ")])
def test_a_plug_in_is_tried_as_it_declares_or_with_its_own_first_engine(
    make_stub: MakeStub, module: str, text: str
) -> None:
    make_plug_in(make_stub, module)
    finding = examine("own")
    assert (finding.name, finding.state, finding.figures["engines"]) == ("own", "fine", ["sync"])
    assert finding.figures["distributions"] == (["own 1.0"] if module else [])
    assert text in finding.text


@pytest.mark.parametrize(
    ("module", "code", "state", "diagnosis"),
    [
        ("nowhere", "", "absent", Diagnosis("own is nowhere", "make own")),
        ("nowhere.inside", "", "absent", Diagnosis("own is nowhere", "make own")),
        ("own", "raise RuntimeError('it is rusty')", "broken", Diagnosis("own is rusty", "mend own")),
    ],
)
def test_a_plug_in_s_failure_is_explained_as_it_declares(
    make_stub: MakeStub, module: str, code: str, state: str, diagnosis: Diagnosis
) -> None:
    make_plug_in(make_stub, module, code)
    finding = examine("own")
    assert (finding.state, finding.diagnosis) == (state, diagnosis)


MODERN = {"avx2", "fma"}


def attempt(name: str, rate: float, *libraries: Kernels) -> Attempt:
    return Attempt(name, (), (Probe(name, "sync", "1.0", kernels=libraries, product=Product(512, rate)),))


MKL = attempt("torch", 100.0, Kernels("MKL", "2024.2", None, 1), Kernels("oneDNN", None, "AVX-512", 1))


def test_libraries_are_named_with_their_rate_if_that_was_measured() -> None:
    torch, own = examine_kernels([MKL, attempt("own", 60.0), MXNET, Attempt("jax", (), ())], {}, MODERN)
    assert (torch.state, own.state, torch.figures["gflop_per_s"]) == ("fine", "fine", 100)
    assert torch.text == "MKL 2024.2; oneDNN, AVX-512 kernels: matrix multiplication at 100 GFLOP/s on one core"
    assert own.text == "matrix multiplication at 60 GFLOP/s on one core"


@pytest.mark.parametrize(
    ("core_type", "environment", "processor", "command"),
    [
        ("Prescott", {}, MODERN, "export OPENBLAS_CORETYPE=Haswell"),
        ("Prescott", {"OPENBLAS_CORETYPE": "Prescott"}, MODERN, "unset OPENBLAS_CORETYPE"),
        ("Prescott", {}, set(), "parallel-core compare parallel --quick"),
        ("Haswell", {}, MODERN, "parallel-core compare parallel --quick"),
    ],
)
def test_less_than_half_of_another_s_rate_is_doubtful(
    core_type: str, environment: dict[str, str], processor: set[str], command: str
) -> None:
    slow = attempt("mxnet", 14.5, Kernels("OpenBLAS", "0.3.13", core_type, 1))
    findings = list(examine_kernels([MKL, slow], environment, processor))
    assert found(findings) == {"torch": FINE, "mxnet": ("doubtful", command)}
    assert cause(findings[1]).startswith("torch multiplies matrices at 100 GFLOP/s on one core (speed-up 6.9)")


OTHER = Attempt("own", (), (Probe("own", "sync", "1.0"),))
NUMPY = Attempt("numpy", (), (Probe("numpy", "sync", "2.0"),))


@pytest.mark.parametrize(
    ("attempts", "cells"),
    [
        ([MXNET, TORCH], FINE),
        ([TORCH], ("absent", "parallel-core compare --backends torch")),
        ([OTHER, NUMPY], ("absent", "parallel-core compare --backends own")),
        ([OTHER, TORCH, NUMPY], ("absent", "parallel-core compare --backends torch")),
        ([Attempt("mxnet", (), ()), NUMPY], ("absent", None)),
    ],
)
def test_what_could_be_compared(attempts: list[Attempt], cells: tuple[str, str | None], tmp_path: Path) -> None:
    assert found(examine_comparing(attempts, tmp_path, tmp_path)) == {"cells": cells, "results": FINE}
    assert found(examine_comparing(attempts, Path("/proc/nothing"), tmp_path))["results"][0] == "doubtful"


CARD = Gpu(0, "NVIDIA A100", 40 * 2**30, "8.0", driver="550.54")
HOPPER = Gpu(0, "NVIDIA H100", 80 * 2**30, "9.0", driver="550.54")
NO_CODE = "its binary holds no code for this GPU: no kernel image is available"


def on_gpus(framework: str, gpus: Gpus) -> Attempt:
    return Attempt(framework, ((framework, "1"),), (Probe(framework, "async", "1", gpus),))


def examined(cards: Sequence[Gpu], framework: str, gpus: Gpus, environment: dict[str, str]) -> list[Finding]:
    return list(examine_gpus(cards, [on_gpus(framework, gpus)], environment))


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        (NO_CODE, "holds no machine code for this GPU"),
        ("the process died of SIGSEGV", "the process died of SIGSEGV"),
    ],
)
def test_a_gpu_that_cannot_compute_says_why(monkeypatch: pytest.MonkeyPatch, reason: str, said: str) -> None:
    monkeypatch.setattr(doctor_gpus, "reason_against", lambda *where: reason if where == ("torch", 1) else "")
    gpus = Gpus("CUDA 12.6", tuple(Gpu(n, "a GPU", 1, "9.0") for n in range(2)))
    first, second = examined((), "torch", gpus, {})
    assert (first.state, second.state) == ("fine", "broken")
    assert said in cause(second)


def test_a_card_is_told_with_memory_driver_and_capability(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_gpus, "reason_against", lambda *_: "")
    card, usable = examined((CARD,), "torch", Gpus("CUDA 12.6", (Gpu(0, CARD.name, 2**30, "8.0"),)), {})
    assert card.text == "NVIDIA A100, 40.0 GiB, driver 550.54, compute capability 8.0"
    assert card.figures.keys() == {"name", "memory_bytes", "driver", "compute_capability"}
    assert usable.text == "an addition on it works, NVIDIA A100, 1.0 GiB, compute capability 8.0"


ON_CPU = "parallel-core run parallel --backend {} --device-kind cpu"
HIDDEN, NONE, CHOSEN = ({"CUDA_VISIBLE_DEVICES": chosen} for chosen in ("-1", "", "0,-1"))
INITIALISED = f'{shlex.quote(sys.executable)} -c "import torch; torch.cuda.init()"'
OTHER_MXNET = f"pip uninstall --yes mxnet && {install_command('mxnet-cu112')}"
CUDA, NEW, KNOWN = (
    Gpus("CUDA 12.6", failure=failure) for failure in (None, Diagnosis("something new"), Diagnosis("known", "mend it"))
)


@pytest.mark.parametrize(
    ("cards", "framework", "gpus", "environment", "state", "command"),
    [
        ([], "torch", Gpus(), {}, "absent", None),
        # A CPU build is told what could use the GPU.
        ([CARD], "torch", Gpus(), {}, "absent", CUDA_12_TORCH),
        ([CARD], "mxnet", Gpus(), {}, "absent", OTHER_MXNET),
        ([HOPPER], "mxnet", Gpus(), {}, "absent", ON_CPU.format("mxnet")),
        ([CARD], "torch", CUDA, HIDDEN, "doubtful", "unset CUDA_VISIBLE_DEVICES"),
        ([CARD], "torch", CUDA, NONE, "doubtful", "unset CUDA_VISIBLE_DEVICES"),
        ([CARD], "torch", CUDA, CHOSEN, "doubtful", INITIALISED),
        ([CARD], "torch", CUDA, {}, "doubtful", INITIALISED),
        ([CARD], "torch", NEW, {}, "broken", ON_CPU.format("torch")),
        ([CARD], "torch", KNOWN, {}, "broken", "mend it"),
    ],
)
def test_what_a_framework_makes_of_the_gpus(
    cards: list[Gpu], framework: str, gpus: Gpus, environment: dict[str, str], state: str, command: str | None
) -> None:
    findings = examined(cards, framework, gpus, environment)
    assert [*found(findings).values()] == [*(FINE for _ in cards), (state, command)]
    assert gpus.failure is None or gpus.failure.cause in cause(findings[-1])


@pytest.mark.parametrize(
    ("peers", "state"), [([()], "absent"), ([(1,), (0,)], "fine"), ([(), ()], "doubtful"), ([(1,), ()], "doubtful")]
)
def test_gpus_that_do_not_reach_each_other(peers: list[tuple[int, ...]], state: str) -> None:
    gpus = tuple(Gpu(index, "a GPU", 1, "8.0", peers=reached) for index, reached in enumerate(peers))
    failure = Diagnosis("OS call failed")
    working, failing = (
        list(examine_transfers([on_gpus("torch", Gpus("CUDA 12.6", gpus, page_locked=one))])) for one in (None, failure)
    )
    assert [one.state for one in working] == ["fine", state]
    assert [one.state for one in failing] == ["broken", state]
    assert "OS call failed" in cause(failing[0])


FIELD = 'case "$1" in *compute_cap*) echo "Field \\"compute_cap\\" is not a valid field to query."; exit 2;; esac; '
TWO = "echo '0, NVIDIA A100, 40960, 550.54, 8.0'; echo '1, NVIDIA A100, [N/A], 550.54, 8.0'"


@pytest.mark.parametrize(
    ("script", "answer"),
    [
        (TWO, (CARD, Gpu(1, "NVIDIA A100", 0, "8.0", driver="550.54"))),
        # An old driver does not tell the capability.
        (FIELD + "echo '0, Tesla K80, 11441, 450.80'", (Gpu(0, "Tesla K80", 11441 * 2**20, None, driver="450.80"),)),
        ('echo "Failed to initialize NVML: Driver/library version mismatch"; exit 9', "sudo reboot"),
        ('echo "It failed because it couldn\'t communicate with the NVIDIA driver."; exit 9', "sudo modprobe nvidia"),
        ('echo "something else"; exit 9', "nvidia-smi"),
        ('echo "No devices were found"; exit 6', ()),
        (None, ()),
    ],
)
def test_the_driver_s_answer_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str | None, answer: tuple[Gpu, ...] | str
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin" if script else "")
    path = tmp_path / "nvidia-smi"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    said = ask_driver()
    assert (said.command if isinstance(said, Diagnosis) else said) == answer
