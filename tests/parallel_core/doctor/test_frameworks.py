"""Frameworks that fail, or block, are tried in separate processes; what their kernels say."""

import signal
import sys
from pathlib import Path

import pytest

from backends.installation.frameworks import ROOT, Diagnosis, install_command
from backends.installation.kernels import Kernels, Product
from backends.installation.probe import Probe
from parallel_core.doctor import Finding
from parallel_core.doctor.frameworks import (
    Attempt,
    examine_frameworks,
    examine_kernels,
    for_shell,
    try_backend,
    working_in_words,
)
from tests.parallel_core.doctor.findings import FINE, MXNET, by_name, cause, code, command
from tests.parallel_core.doctor.stub_frameworks import BLOCKS, DIES, MakeStub, make_plug_in

DEADLINE = 60.0
NUMPY = Attempt("numpy", (Probe("numpy", "sync", "2.0"),))


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder for environments, beside no sources."""
    return tmp_path


def examine(framework: str, checkout: Path, deadline: float = DEADLINE) -> Finding:
    """Try one framework and return the doctor's first finding about it."""
    return next(examine_frameworks([try_backend(framework, deadline, checkout)]))


UNKNOWN = "raise ImportError('it went wrong\\nin two lines')"
NO_PZERO = "AttributeError: `np.PZERO` was removed in the NumPy 2.0 release.\n"


# The messages that are known: tests/backends/installation/test_frameworks.py.
@pytest.mark.parametrize(
    ("framework", "program", "cause_code", "named", "repair"),
    [
        # What is not known comes with a command that shows it.
        ("mxnet", UNKNOWN, "unknown", ("it went wrong in two lines",), "backends.load('mxnet'"),
        ("mxnet", DIES.format(said=NO_PZERO), "versions", (), "pip install 'numpy<1.24'"),
        (
            "torch",
            DIES.format(said="MKL FATAL ERROR\n"),
            "unknown",
            (signal.SIGABRT.name, "MKL FATAL ERROR"),
            "backends.load(",
        ),
    ],
)
def test_a_framework_that_fails_is_explained(
    make_stub: MakeStub,
    framework: str,
    program: str,
    cause_code: str,
    named: tuple[str, ...],
    repair: str,
) -> None:
    make_stub(framework, program)
    findings = list(examine_frameworks([try_backend(framework, DEADLINE)]))
    # Once, and not for each engine.
    assert [(finding.name, finding.state) for finding in findings] == [
        (framework, "broken"),
        ("frameworks", "broken"),
    ]
    assert code(findings[0]) == cause_code
    assert all(words in cause(findings[0]) for words in named)
    assert repair in str(command(findings[0]))


def test_an_import_that_blocks_is_ended_at_the_deadline(make_stub: MakeStub) -> None:
    make_stub("mxnet", BLOCKS)
    attempt = try_backend("mxnet", 0.5)
    # What blocks once would block again.
    assert len(attempt.probes) == 1
    finding, _ = examine_frameworks([attempt])
    assert "0.5 s" in cause(finding)
    assert str(command(finding)).startswith("timeout ")


def test_a_role_that_would_block_the_import_is_named(
    make_stub: MakeStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_stub("mxnet", BLOCKS)
    monkeypatch.setenv("DMLC_ROLE", "server")
    finding, _ = examine_frameworks([try_backend("mxnet", DEADLINE)])
    assert code(finding) == "variables"
    assert "DMLC_ROLE=server" in cause(finding)
    assert str(command(finding)).startswith("unset DMLC_ROLE ")


def test_what_is_not_installed_is_no_failure(
    monkeypatch: pytest.MonkeyPatch, checkout: Path
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    finding = examine("torch", checkout)
    assert (finding.state, code(finding)) == ("absent", "not-installed")
    assert str(command(finding)).endswith(install_command("torch").removeprefix("pip"))


@pytest.mark.parametrize("module", ["", "own"])
def test_a_plug_in_is_tried_as_it_declares_or_with_its_own_first_engine(
    make_stub: MakeStub, checkout: Path, module: str
) -> None:
    make_plug_in(make_stub, module)
    finding = examine("own", checkout)
    assert (finding.name, finding.state, finding.figures["engines"]) == ("own", "fine", ["sync"])


@pytest.mark.parametrize(
    ("module", "code", "state", "causes", "repair"),
    [
        ("nowhere", "", "absent", "own is nowhere", "make own"),
        ("nowhere.inside", "", "absent", "own is nowhere", "make own"),
        (
            "own",
            "raise RuntimeError('it is rusty')",
            "broken",
            "own is rusty",
            "mend own",
        ),
    ],
)
def test_a_plug_in_s_failure_is_explained_as_it_declares(
    make_stub: MakeStub,
    checkout: Path,
    module: str,
    code: str,
    state: str,
    causes: str,
    repair: str,
) -> None:
    make_plug_in(make_stub, module, code)
    finding = examine("own", checkout)
    assert (finding.state, command(finding)) == (state, repair)
    assert cause(finding).endswith(causes)


@pytest.mark.parametrize(
    ("code", "state"), [("", "fine"), ("raise RuntimeError('it is rusty')", "broken")]
)
def test_a_framework_is_tried_in_the_environment_that_make_made_for_it(
    make_stub: MakeStub, checkout: Path, code: str, state: str
) -> None:
    make_plug_in(make_stub, "beside", "import beside")
    environment = checkout / ".venv-own"
    packages, python = environment / "lib/python3/site-packages", environment / "bin/python"
    (packages / "beside").mkdir(parents=True)
    (packages / "beside/__init__.py").write_text(code)
    python.parent.mkdir()
    python.write_text(
        f'#!/bin/sh\nPYTHONPATH="{packages}:$PYTHONPATH" exec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    attempt = try_backend("own", DEADLINE, checkout)
    finding = next(examine_frameworks([attempt]))
    assert (finding.state, finding.figures["python"]) == (state, str(python))
    assert working_in_words([attempt]) == (("own (in .venv-own)",) if state == "fine" else ())


def test_what_works_is_named_with_what_is_unusual() -> None:
    half = Attempt(
        "torch",
        (Probe("torch", "async", failure=Diagnosis("a cause")), Probe("torch", "sync", "2.0")),
    )
    assert working_in_words([NUMPY, MXNET, half, Attempt("jax")]) == (
        "MXNet",
        "PyTorch (only without queues)",
        "NumPy",
    )
    states = by_name(examine_frameworks([half, NUMPY]))
    assert states["torch"] == FINE
    assert states["torch, async engine"][0] == "broken"
    without_any = by_name(examine_frameworks([Attempt("jax"), NUMPY]))
    assert without_any["frameworks"][0] == "broken"


def test_commands_are_for_this_python_if_the_shell_s_pip_is_another_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = str(tmp_path / "my python")
    monkeypatch.setenv("PATH", "")
    bare_pip = Diagnosis("a cause", "pip uninstall --yes mxnet && pip install numpy")
    expected = f"'{python}' -m pip uninstall --yes mxnet && '{python}' -m pip install numpy"
    assert for_shell(bare_pip, python).command == expected
    another_pip = Diagnosis("a cause", "elsewhere/bin/pip install numpy")
    assert for_shell(another_pip, python) == another_pip
    # A pip beside the Python that runs is its own.
    (tmp_path / "pip").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert for_shell(bare_pip, python) == bare_pip


def test_make_needs_no_folder_in_the_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    diagnosis = Diagnosis("a cause", f"make -C {ROOT} .venv-jax/ready")
    monkeypatch.chdir(tmp_path)
    assert for_shell(diagnosis) == diagnosis
    monkeypatch.chdir(ROOT)
    assert for_shell(diagnosis).command == "make .venv-jax/ready"


MODERN = {"avx2", "fma"}


def attempt_at(name: str, rate: float, *libraries: Kernels) -> Attempt:
    return Attempt(
        name, (Probe(name, "sync", "1.0", kernels=libraries, product=Product(512, rate)),)
    )


MKL = attempt_at(
    "torch", 100.0, Kernels("MKL", "2024.2", None, 1), Kernels("oneDNN", None, "AVX-512", 1)
)


def test_libraries_are_named_with_their_rate_if_that_was_measured() -> None:
    attempts = [MKL, attempt_at("own", 60.0), MXNET, Attempt("jax")]
    torch, own = examine_kernels(attempts, {}, MODERN)
    assert (torch.state, own.state, torch.figures["gflop_per_s"]) == ("fine", "fine", 100)
    product = "matrix multiplication at {} GFLOP/s on one core"
    assert torch.text == f"MKL 2024.2; oneDNN, AVX-512 kernels: {product.format(100)}"
    assert own.text == product.format(60)


@pytest.mark.parametrize(
    ("core_type", "environment", "processor", "setting"),
    [
        ("Prescott", {}, MODERN, "export OPENBLAS_CORETYPE=Haswell"),
        ("Prescott", {"OPENBLAS_CORETYPE": "Prescott"}, MODERN, "unset OPENBLAS_CORETYPE"),
        ("Prescott", {}, set(), None),
        ("Haswell", {}, MODERN, None),
    ],
)
def test_less_than_half_of_another_s_rate_is_doubtful(
    core_type: str, environment: dict[str, str], processor: set[str], setting: str | None
) -> None:
    slow = attempt_at("mxnet", 14.5, Kernels("OpenBLAS", "0.3.13", core_type, 1))
    findings = list(examine_kernels([MKL, slow], environment, processor))
    assert by_name(findings) == {"torch": FINE, "mxnet": ("doubtful", setting)}
    assert code(findings[1]) == "slow-kernels"
    # On a busy machine the rate alone proves nothing, and old kernels are slow all the same.
    disturbed = by_name(examine_kernels([MKL, slow], environment, processor, is_disturbed=True))
    assert disturbed["mxnet"] == (FINE if setting is None else ("doubtful", setting))


def test_a_framework_multiplies_as_fast_as_its_fastest_engine() -> None:
    probes = tuple(
        Probe("mxnet", "async", "1.9.1", product=Product(512, rate)) for rate in (10.0, 90.0)
    )
    finding, _ = examine_kernels([Attempt("mxnet", probes), MKL], {}, MODERN)
    assert (finding.state, finding.figures["gflop_per_s"]) == ("fine", 90)
