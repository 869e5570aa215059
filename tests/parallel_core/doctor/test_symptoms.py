"""Every known failure of an installation is recognised from its symptom, in a process that shows it."""

import signal
import sys
from collections.abc import Callable

import pytest

from parallel_core.doctor.finding import Finding
from parallel_core.doctor.frameworks import examine_frameworks, try_backend
from tests.parallel_core.doctor.made_up import BLOCKS, DIES, HIDDEN, MakeStub, make_plug_in

DEADLINE = 60.0


def found(framework: str, deadline: float = DEADLINE) -> Finding:
    """Try one framework and return the first that the doctor says of it."""
    return examine_frameworks([try_backend(framework, deadline)]).findings[0]


def advice(finding: Finding) -> tuple[str, str]:
    assert finding.advice is not None
    return finding.advice.cause, finding.advice.command


RAISED = "raise {error}"
NO_FILE = "OSError('{}: cannot open shared object file: No such file or directory')"
INSTALL = "pip install 'parallel-core[mxnet-cu112]'"
TO_THE_CPU = "parallel-core run parallel --backend mxnet --device-kind cpu"
OWN_PYTHON = "python3.11 -m venv mxnet-on-cpu"


@pytest.mark.parametrize(
    ("framework", "error", "cause", "command"),
    [
        (
            "mxnet",
            "AttributeError(\"module 'numpy' has no attribute 'bool'\")",
            "np.bool, which NumPy 1.24 removed",
            "pip install 'numpy<1.24'",
        ),
        (
            "mxnet",
            "AttributeError('`np.PZERO` was removed in the NumPy 2.0 release.')",
            "np.PZERO, which NumPy 2 removed",
            "pip install 'numpy<1.24'",
        ),
        ("mxnet", "ModuleNotFoundError(\"No module named 'distutils'\")", "which Python 3.12 removed", OWN_PYTHON),
        ("mxnet", NO_FILE.format("libcudart.so.11.0"), "libcudart.so.11.0", INSTALL),
        ("mxnet", NO_FILE.format("libcudnn.so.8"), "libcudnn.so.8", INSTALL),
        ("mxnet", NO_FILE.format("libnccl.so.2"), "libnccl.so.2", INSTALL),
        ("mxnet", NO_FILE.format("libcuda.so.1"), "the NVIDIA driver is not installed", OWN_PYTHON),
        ("mxnet", "RuntimeError('no kernel image is available for execution')", "5.0 to 8.6", TO_THE_CPU),
        ("mxnet", "RuntimeError('CUDA driver version is insufficient')", "older than CUDA 11", TO_THE_CPU),
        ("mxnet", "OSError('libmxnet.so: undefined symbol: ncclBcast')", "NCCL", "nvidia-nccl-cu11==2.21.5"),
        ("torch", "ImportError('libtorch_cuda.so: undefined symbol: ncclCommRegister')", "NCCL", "torch-alone"),
    ],
)
def test_an_import_that_fails_is_explained(
    make_stub: MakeStub, framework: str, error: str, cause: str, command: str
) -> None:
    make_stub(framework, RAISED.format(error=error))
    finding = found(framework)
    assert finding.state == "broken"
    said, given = advice(finding)
    assert cause in said
    assert command in given


# The real framework in a process whose NumPy lacks a name, or whose Python lacks a module, as newer ones do.
WITHOUT = """
import numpy

def refuse(name):
    raise AttributeError(f"module 'numpy' has no attribute {name!r}")

vars(numpy).pop("bool", None)
numpy.__getattr__ = refuse
"""


@pytest.mark.parametrize(
    ("before", "cause"),
    [(WITHOUT, "np.bool, which NumPy 1.24 removed"), (HIDDEN.format(names=["distutils"]), "which Python 3.12 removed")],
    ids=["NumPy 1.24", "Python 3.12"],
)
def test_the_real_mxnet_s_failures_are_explained(
    require: Callable[[str], None], make_stub: MakeStub, before: str, cause: str
) -> None:
    require("mxnet")
    make_stub("sitecustomize", before)
    finding = found("mxnet")
    assert finding.state == "broken"
    assert cause in advice(finding)[0]


def test_a_failure_is_told_once_and_not_for_each_engine(make_stub: MakeStub) -> None:
    make_stub("mxnet", DIES.format(said="broken"))
    findings = examine_frameworks([try_backend("mxnet", DEADLINE)]).findings
    assert [finding.name for finding in findings] == ["mxnet", "frameworks"]


def test_an_unknown_failure_is_told_with_a_command_that_shows_it(make_stub: MakeStub) -> None:
    make_stub("mxnet", RAISED.format(error="ImportError('it went wrong\\nin two lines')"))
    cause, command = advice(found("mxnet"))
    assert "it went wrong in two lines" in cause
    assert "backends.load('\"'\"'mxnet'\"'\"'" in command


def test_an_import_that_blocks_is_ended_at_the_deadline(make_stub: MakeStub) -> None:
    make_stub("mxnet", BLOCKS)
    attempt = try_backend("mxnet", 2.0)
    # What blocks once would block again.
    assert len(attempt.probes) == 1
    cause, command = advice(examine_frameworks([attempt]).findings[0])
    assert "gave no result within 2 s and was killed" in cause
    assert "faulthandler.dump_traceback_later" in command


@pytest.mark.parametrize("role", ["server", "scheduler"])
def test_a_role_that_makes_the_import_block_is_named(
    make_stub: MakeStub, monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    make_stub("mxnet", BLOCKS)
    monkeypatch.setenv("DMLC_ROLE", role)
    cause, command = advice(found("mxnet"))
    assert f"DMLC_ROLE={role}" in cause
    assert command.startswith("unset DMLC_ROLE ")


def test_a_process_that_is_killed_says_by_what_and_what_it_said_last(make_stub: MakeStub) -> None:
    make_stub("torch", DIES.format(said="Intel MKL FATAL ERROR\n"))
    cause, _ = advice(found("torch"))
    assert signal.SIGABRT.name in cause
    assert "Intel MKL FATAL ERROR" in cause


def test_an_abort_is_explained_by_what_was_said(make_stub: MakeStub) -> None:
    make_stub("mxnet", DIES.format(said="F engine.cc:48: Check failed: Cannot find Engine NaivEngine\n"))
    cause, command = advice(found("mxnet"))
    assert "MXNET_ENGINE_TYPE=NaivEngine is none of MXNet's engines" in cause
    assert command == "unset MXNET_ENGINE_TYPE"


def test_what_is_not_installed_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    finding = found("torch")
    assert finding.state == "absent"
    assert advice(finding) == ("torch is not installed", "pip install 'parallel-core[torch]'")


def test_without_any_framework_nothing_can_be_done() -> None:
    section = examine_frameworks([try_backend("numpy", DEADLINE)])
    assert [(one.name, one.state) for one in section.findings] == [("numpy", "fine"), ("frameworks", "broken")]


def test_a_plug_in_is_tried_with_its_own_first_engine(make_stub: MakeStub) -> None:
    make_plug_in(make_stub)
    finding = found("own")
    assert (finding.name, finding.state, finding.figures["engines"]) == ("own", "fine", ["sync"])
    assert finding.text.endswith("; its sync engine works")


def test_the_engines_of_a_real_framework_work(require: Callable[[str], None]) -> None:
    require("torch")
    finding = found("torch")
    assert (finding.state, finding.figures["engines"]) == ("fine", ["async", "sync"])
