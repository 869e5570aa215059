"""Installation: commands for it; failures, by messages recorded elsewhere; GPUs, by stand-ins for
frameworks.
"""

import shlex
import signal
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.installation import probe
from backends.installation.frameworks import (
    Gpu,
    Gpus,
    diagnose,
    diagnose_absence,
    install_command,
    installation_of,
    separate_environment,
)
from backends.installation.probe import reason_against, reason_of_failure
from tests.tree import ROOT


@pytest.mark.parametrize("folder", ["lab", "the lab"])
def test_a_checkout_is_installed_from_its_files(tmp_path: Path, folder: str) -> None:
    root = tmp_path / folder
    root.mkdir()
    without_files = install_command("jax", root=root)
    assert shlex.split(without_files) == ["pip", "install", "parallel-core[jax]"]

    (root / "setup.cfg").touch()
    from_files = install_command("jax", "--upgrade", root)
    package = f"{root}[jax]"
    assert shlex.split(from_files) == ["pip", "install", "--upgrade", "-e", package]

    # No Makefile makes an environment there.
    name, command = separate_environment("jax", root=root)
    make, install = command.split(" && ")
    assert name == "jax-alone"
    assert make == "python3 -m venv jax-alone"
    assert shlex.split(install) == ["jax-alone/bin/pip", "install", "-e", package]


def test_the_makefile_makes_the_environment_for_jax() -> None:
    name, command = separate_environment("jax", root=ROOT)
    assert name == f"{ROOT}/.venv-jax"
    assert shlex.split(command) == ["make", "-C", str(ROOT), ".venv-jax/ready"]
    assert "$(JAX)/ready:" in (ROOT / "Makefile").read_text()


_, FOR_JAX = separate_environment("jax")
UNSET_ROLE = "unset DMLC_ROLE DMLC_PS_ROOT_URI DMLC_PS_ROOT_PORT DMLC_NUM_WORKER DMLC_NUM_SERVER"


@pytest.mark.parametrize(
    ("environment", "commands"),
    [
        ({"DMLC_ROLE": "worker"}, []),
        ({"DMLC_ROLE": "server"}, [UNSET_ROLE]),
        ({"DMLC_ROLE": "scheduler"}, [UNSET_ROLE]),
    ],
)
def test_variables_are_diagnosed_before_they_do_harm(
    environment: dict[str, str], commands: list[str]
) -> None:
    diagnoses = installation_of("mxnet").harmful_variables(environment)
    assert [diagnosis.command for diagnosis in diagnoses.values()] == commands
    assert installation_of("torch").harmful_variables(environment) == {}


TOO_OLD = (
    "CUDA initialization: The NVIDIA driver on your system is too old (found version {}). "
    "Please update your GPU"
)
NO_KERNEL = (
    "cudaSuccess (209 vs. 0) : Name: mxnet_generic_kernel ErrStr:no kernel image is "
    "available for execution"
)
NO_FILE = "OSError: {}: cannot open shared object file: No such file or directory"


@pytest.mark.parametrize(
    ("library", "command"),
    [
        ("libgomp.so.1", "sudo apt-get install libgfortran5 libgomp1"),
        ("libquadmath.so.0", "sudo apt-get install libgfortran5 libgomp1"),
        # On ARM.
        ("libarmpl_lp64_mp.so", "sudo apt-get install liblapacke libopenblas0-openmp && "),
        ("libamath.so", "sudo apt-get install liblapacke libopenblas0-openmp && "),
    ],
)
def test_debian_s_packages_bring_what_mxnet_s_wheels_leave_out(library: str, command: str) -> None:
    diagnosis = diagnose("mxnet", NO_FILE.format(library))
    assert diagnosis is not None
    assert diagnosis.command.startswith(command)


@given(st.text())
def test_what_is_not_known_is_not_explained(text: str) -> None:
    assert diagnose("mxnet", text) is None
    assert diagnose("torch", text) is None
    assert diagnose("mxnet", NO_FILE.format("libgone.so.3")) is None
    assert diagnose("numpy", NO_KERNEL) is None


@pytest.mark.parametrize(
    ("jax", "numpy", "wrong", "command"),
    [
        ("0.4.30", "1.23.5", "jax 0.4.30 and numpy 1.23.5", FOR_JAX),
        ("0.10.2", "1.26.4", "numpy 1.26.4", FOR_JAX),
        ("0.9.9rc1", "2.4.6", "jax 0.9.9rc1", install_command("jax", "--upgrade")),
    ],
)
def test_versions_that_jax_cannot_be_used_with_are_known_before_it_is_imported(
    monkeypatch: pytest.MonkeyPatch, jax: str, numpy: str, wrong: str, command: str
) -> None:
    versions = {"jax": jax, "numpy": numpy}
    monkeypatch.setattr("backends.jax.installed_version", versions.get)
    diagnosis = installation_of("jax").installed()
    assert diagnosis is not None
    assert (diagnosis.code, diagnosis.command) == ("versions", command)
    assert diagnosis.cause.startswith(f"{wrong} ")


@pytest.mark.parametrize(
    ("jax", "numpy"),
    [
        ("0.10.0.dev1", "2.0.0"),
        ("1.0", "3.0"),
        # It is not there: nothing is wrong with NumPy then.
        (None, "1.23.5"),
    ],
)
def test_versions_that_jax_can_be_used_with_are_not_diagnosed(
    monkeypatch: pytest.MonkeyPatch, jax: str | None, numpy: str
) -> None:
    versions = {"jax": jax, "numpy": numpy}
    monkeypatch.setattr("backends.jax.installed_version", versions.get)
    assert installation_of("jax").installed() is None


def test_what_is_not_installed_is_said_as_this_python_can_have_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("backends.installation.frameworks.find_spec", lambda _: None)
    for framework in ("mxnet", "torch"):
        diagnosis = diagnose_absence(framework, (3, 11, 2))
        assert (diagnosis.code, diagnosis.command) == ("not-installed", install_command(framework))


def with_only(monkeypatch: pytest.MonkeyPatch, framework: str, numpy: str) -> None:
    """Make as if one framework were installed, beside NumPy in some version."""
    module = "backends.installation.frameworks"
    monkeypatch.setattr(f"{module}.installed_version", lambda _: numpy)
    monkeypatch.setattr(f"{module}.find_spec", lambda name: name == framework or None)


@pytest.mark.parametrize(
    ("framework", "numpy", "other", "needs"),
    [("jax", "1.23.5", "mxnet", ">=2"), ("mxnet", "2.4.6", "jax", "<1.24")],
)
def test_frameworks_that_take_different_numpys_need_an_environment_each(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    framework: str,
    numpy: str,
    other: str,
    needs: str,
) -> None:
    with_only(monkeypatch, other, numpy)
    reason = f"NumPy {needs}, and so a separate environment beside "

    # `compare` finds the environments that the Makefile makes, so nothing is explained.
    folder, command = separate_environment(framework, root=ROOT)
    with_makefile = diagnose_absence(framework, (3, 11, 2), ROOT)
    assert with_makefile.command == command
    assert reason not in with_makefile.cause
    assert f"--python {framework}={folder}/bin/python" not in with_makefile.cause

    folder, command = separate_environment(framework, root=tmp_path)
    without_makefile = diagnose_absence(framework, (3, 11, 2), tmp_path)
    assert without_makefile.command == command
    assert reason in without_makefile.cause
    assert f"--python {framework}={folder}/bin/python" in without_makefile.cause


@pytest.mark.parametrize("numpy", ["1.26.4", "2.4.6"])
def test_a_framework_that_minds_no_other_numpy_is_installed_beside(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, numpy: str
) -> None:
    with_only(monkeypatch, "torch", numpy)
    for root in (ROOT, tmp_path):
        diagnosis = diagnose_absence("jax", (3, 11, 2), root)
        assert diagnosis.command == install_command("jax", root=root)
        assert "separate environment" not in diagnosis.cause
        assert "--python" not in diagnosis.cause


def fake_torch(
    monkeypatch: pytest.MonkeyPatch, count: int, *, cuda: str | None = "12.6", warning: str = ""
) -> None:
    """Put a torch in the real one's place that finds `count` GPUs."""

    def is_available() -> bool:
        if warning:
            warnings.warn(warning, stacklevel=1)
        return count > 0

    properties = SimpleNamespace(name="NVIDIA A100", total_memory=40 * 2**30, major=8, minor=0)
    cuda_module = SimpleNamespace(
        is_available=is_available,
        device_count=lambda: count,
        get_device_properties=lambda index: properties,
    )
    module = SimpleNamespace(version=SimpleNamespace(cuda=cuda), cuda=cuda_module)
    monkeypatch.setitem(sys.modules, "torch", module)


def test_torch_s_gpus_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_torch(monkeypatch, 2)
    gpus = installation_of("torch").gpus()
    assert gpus.cuda == "CUDA 12.6"
    assert gpus.failure is None
    assert gpus.devices == (
        Gpu(0, "NVIDIA A100", 40 * 2**30, "8.0"),
        Gpu(1, "NVIDIA A100", 40 * 2**30, "8.0"),
    )
    # A CPU build is not asked.
    fake_torch(monkeypatch, 1, cuda=None)
    assert installation_of("torch").gpus() == Gpus()


@pytest.mark.parametrize("warning", ["", "Found no NVIDIA driver on your system."])
def test_no_gpu_is_no_failure(monkeypatch: pytest.MonkeyPatch, warning: str) -> None:
    fake_torch(monkeypatch, 0, warning=warning)
    gpus = installation_of("torch").gpus()
    assert gpus.cuda == "CUDA 12.6"
    assert gpus.devices == ()
    assert gpus.failure is None


def test_an_old_driver_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_torch(monkeypatch, 0, warning=TOO_OLD.format(11040))
    gpus = installation_of("torch").gpus()
    assert gpus.cuda == "CUDA 12.6"
    assert gpus.devices == ()
    assert str(gpus.failure).endswith("/whl/cu118")


@pytest.mark.parametrize(("cuda", "devices"), [(False, ()), (True, (Gpu(0, None, 2**30, None),))])
def test_mxnet_s_gpus(
    monkeypatch: pytest.MonkeyPatch, cuda: bool, devices: tuple[Gpu, ...]
) -> None:
    module = SimpleNamespace(
        runtime=SimpleNamespace(Features=lambda: SimpleNamespace(is_enabled=lambda name: cuda)),
        context=SimpleNamespace(num_gpus=lambda: 1, gpu_memory_info=lambda index: (1, 2**30)),
        MXNetError=RuntimeError,
    )
    monkeypatch.setitem(sys.modules, "mxnet", module)
    assert installation_of("mxnet").gpus().devices == devices


@pytest.mark.parametrize(
    ("status", "errors", "reason"),
    [
        (0, "a warning\n", ""),
        (
            1,
            f"{NO_KERNEL}\nlines behind",
            "its binary holds no code for this GPU: no kernel image is available",
        ),
        (1, "Traceback:\n  somewhere\nRuntimeError: no driver\n\n", "RuntimeError: no driver"),
        (-signal.SIGSEGV, NO_KERNEL, "the process died of SIGSEGV"),
        (3, "", "exit status 3"),
    ],
)
def test_why_a_probe_failed_is_said(status: int, errors: str, reason: str) -> None:
    assert reason_of_failure(status, errors) == reason


def test_a_probe_finds_no_gpu_where_there_is_none() -> None:
    # NumPy has none on any machine.
    assert reason_against("numpy", 0).endswith(" gpu:0")


def test_a_probe_does_not_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_probing_gpu", True)
    assert reason_against("no such framework", 0) == ""


def test_a_probe_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "MAX_GPU_SECONDS", 0.01)
    assert "took more than" in reason_against("torch", 99)
