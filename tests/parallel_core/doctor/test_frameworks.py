"""Frameworks that fail, or block, are tried in a process of their own, and the failure is diagnosed."""

import signal
import sys
from collections.abc import Callable

import pytest

from parallel_core.doctor.finding import Diagnosis, Finding
from parallel_core.doctor.frameworks import examine_frameworks, try_backend
from tests.parallel_core.doctor.stub_frameworks import BLOCKS, DIES, HIDDEN, MakeStub, make_plug_in

DEADLINE = 60.0


def examine(framework: str, deadline: float = DEADLINE) -> Finding:
    """Try one framework and return the doctor's first finding about it."""
    return examine_frameworks([try_backend(framework, deadline)]).findings[0]


def diagnosis(finding: Finding) -> Diagnosis:
    assert finding.diagnosis is not None
    return finding.diagnosis


RAISED = "raise {error}"
NO_FILE = "OSError('{}: cannot open shared object file: No such file or directory')"


# The messages that are known: tests/backends/installation/test_frameworks.py.
@pytest.mark.parametrize(
    ("framework", "error", "cause", "command"),
    [
        ("mxnet", NO_FILE.format("libcudnn.so.8"), "libcudnn.so.8", "pip install 'parallel-core[mxnet-cu112]'"),
        ("torch", "ImportError('libtorch_cuda.so: undefined symbol: ncclCommRegister')", "NCCL", "torch-alone"),
    ],
)
def test_an_import_that_fails_is_explained(
    make_stub: MakeStub, framework: str, error: str, cause: str, command: str
) -> None:
    make_stub(framework, RAISED.format(error=error))
    finding = examine(framework)
    assert finding.state == "broken"
    assert cause in diagnosis(finding).cause
    assert command in diagnosis(finding).command


def test_a_failure_of_the_real_mxnet_is_explained(require: Callable[[str], None], make_stub: MakeStub) -> None:
    require("mxnet")
    # As in Python 3.12.
    make_stub("sitecustomize", HIDDEN.format(names=["distutils"]))
    finding = examine("mxnet")
    assert finding.state == "broken"
    assert "which Python 3.12 removed" in diagnosis(finding).cause


def test_a_failure_is_reported_once_and_not_for_each_engine(make_stub: MakeStub) -> None:
    make_stub("mxnet", DIES.format(said="broken"))
    findings = examine_frameworks([try_backend("mxnet", DEADLINE)]).findings
    assert [finding.name for finding in findings] == ["mxnet", "frameworks"]


def test_an_unknown_failure_comes_with_a_command_that_shows_it(make_stub: MakeStub) -> None:
    make_stub("mxnet", RAISED.format(error="ImportError('it went wrong\\nin two lines')"))
    known = diagnosis(examine("mxnet"))
    assert "it went wrong in two lines" in known.cause
    assert "backends.load('\"'\"'mxnet'\"'\"'" in known.command


def test_an_import_that_blocks_is_ended_at_the_deadline(make_stub: MakeStub) -> None:
    make_stub("mxnet", BLOCKS)
    attempt = try_backend("mxnet", 2.0)
    # What blocks once would block again.
    assert len(attempt.probes) == 1
    known = diagnosis(examine_frameworks([attempt]).findings[0])
    assert "gave no result within 2 s and was killed" in known.cause
    assert "faulthandler.dump_traceback_later" in known.command


def test_a_role_that_makes_the_import_block_is_named(make_stub: MakeStub, monkeypatch: pytest.MonkeyPatch) -> None:
    make_stub("mxnet", BLOCKS)
    monkeypatch.setenv("DMLC_ROLE", "server")
    known = diagnosis(examine("mxnet"))
    assert "DMLC_ROLE=server" in known.cause
    assert known.command.startswith("unset DMLC_ROLE ")


def test_a_killed_process_is_reported_with_its_signal_and_last_line(make_stub: MakeStub) -> None:
    make_stub("torch", DIES.format(said="Intel MKL FATAL ERROR\n"))
    known = diagnosis(examine("torch"))
    assert signal.SIGABRT.name in known.cause
    assert "Intel MKL FATAL ERROR" in known.cause


def test_an_abort_is_explained_by_what_was_said(make_stub: MakeStub) -> None:
    make_stub("mxnet", DIES.format(said="F engine.cc:48: Check failed: Cannot find Engine NaivEngine\n"))
    known = diagnosis(examine("mxnet"))
    assert "MXNET_ENGINE_TYPE=NaivEngine is none of MXNet's engines" in known.cause
    assert known.command == "unset MXNET_ENGINE_TYPE"


def test_what_is_not_installed_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    finding = examine("torch")
    assert finding.state == "absent"
    assert diagnosis(finding) == Diagnosis("torch is not installed", "pip install 'parallel-core[torch]'")


def test_without_any_framework_nothing_can_be_done() -> None:
    section = examine_frameworks([try_backend("numpy", DEADLINE)])
    assert [(one.name, one.state) for one in section.findings] == [("numpy", "fine"), ("frameworks", "broken")]


def test_a_plug_in_is_tried_with_its_own_first_engine(make_stub: MakeStub) -> None:
    make_plug_in(make_stub)
    finding = examine("own")
    assert (finding.name, finding.state, finding.figures["engines"]) == ("own", "fine", ["sync"])
    assert finding.text.endswith("; its sync engine works")


def test_a_plug_in_that_declares_its_installation_is_looked_for_as_it_says(make_stub: MakeStub) -> None:
    make_plug_in(make_stub, module="own")
    finding = examine("own")
    assert (finding.state, finding.figures["distributions"]) == ("fine", ["own 1.0"])
    assert finding.text.endswith(" from own, built for CPUs; its sync engine works")


def test_a_plug_in_s_framework_that_is_not_installed_is_said_as_it_declares(make_stub: MakeStub) -> None:
    make_plug_in(make_stub, module="nowhere")
    finding = examine("own")
    assert (finding.state, diagnosis(finding)) == ("absent", Diagnosis("own is nowhere", "make own"))


def test_a_plug_in_s_failure_is_explained_as_it_says(make_stub: MakeStub) -> None:
    make_plug_in(make_stub, module="own", code="raise RuntimeError('it is rusty')")
    finding = examine("own")
    assert (finding.state, diagnosis(finding)) == ("broken", Diagnosis("own is rusty", "mend own"))


def test_the_engines_of_a_real_framework_work(require: Callable[[str], None]) -> None:
    require("torch")
    finding = examine("torch")
    assert (finding.state, finding.figures["engines"]) == ("fine", ["async", "sync"])
