"""Frameworks that fail, or block, are tried in a process of their own; what follows for kernels and comparisons."""

import signal
import sys
from pathlib import Path

import pytest

from backends.installation.frameworks import Diagnosis, install_command
from backends.installation.kernels import Kernels, Product
from backends.installation.probe import Probe
from parallel_core.doctor import Finding
from parallel_core.doctor.frameworks import (
    Attempt,
    examine_comparing,
    examine_frameworks,
    examine_kernels,
    try_backend,
)
from tests.parallel_core.doctor.findings import FINE, MXNET, TORCH, cause, found
from tests.parallel_core.doctor.stub_frameworks import BLOCKS, DIES, MakeStub, make_plug_in

DEADLINE = 60.0


def examine(framework: str, deadline: float = DEADLINE) -> Finding:
    """Try one framework and return the doctor's first finding about it."""
    return next(examine_frameworks([try_backend(framework, deadline)]))


NO_ENGINE = "F engine.cc:48: Check failed: Cannot find Engine NaivEngine\n"


# The messages that are known: tests/backends/installation/test_frameworks.py.
@pytest.mark.parametrize(
    ("framework", "code", "causes", "command"),
    [
        # What is not known comes with a command that shows it.
        (
            "mxnet",
            "raise ImportError('it went wrong\\nin two lines')",
            ("it went wrong in two lines",),
            "backends.load('\"'\"'mxnet'\"'\"'",
        ),
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
