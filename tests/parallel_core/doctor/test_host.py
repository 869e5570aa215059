"""What a container leaves of cores and memory; data and caches, without downloading anything; ports.

Packages are held against what is required, commands are for this Python, and variables told with what they do.
"""

import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.installation.frameworks import Diagnosis
from backends.registry import loading
from parallel_core.doctor import host
from parallel_core.doctor.host import examine_settings
from parallel_core.system import machine
from parallel_core.training import dataset
from tests.parallel_core.doctor.findings import FINE, MXNET, TORCH, Found, cause, found


@pytest.fixture
def limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A control group without limits, until they are written into its folder."""
    monkeypatch.setattr(machine, "CONTROL_GROUP", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("limit", "cores", "expected"),
    [
        ("max 100000", 4, FINE),
        ("800000 100000", 4, FINE),
        ("250000 100000", 4, ("doubtful", "taskset --cpu-list 4,5 parallel-core compare")),
        ("nonsense", 4, FINE),
        # One core shows nothing parallel.
        ("max 100000", 1, ("doubtful", "taskset --cpu-list 0-7 parallel-core doctor")),
    ],
)
def test_cores_and_a_container_s_share_of_them(
    limits: Path, monkeypatch: pytest.MonkeyPatch, limit: str, cores: int, expected: Found
) -> None:
    monkeypatch.setattr(host, "core_numbers", lambda: [4, 5, 6, 7])
    monkeypatch.setattr(host, "available_cores", lambda: cores)
    monkeypatch.setattr(host.os, "cpu_count", lambda: 8)
    (limits / "cpu.max").write_text(limit)
    assert found([host.examine_cores()]) == {"CPU cores": expected}


def test_a_container_s_share_of_memory(limits: Path) -> None:
    unlimited = host.examine_memory().figures["total_bytes"]
    (limits / "memory.max").write_text("max")
    assert host.examine_memory().figures["total_bytes"] == unlimited > 0
    (limits / "memory.max").write_text(str(2**20))
    assert host.examine_memory().figures["total_bytes"] == 2**20


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No data anywhere, and a cache of one's own."""
    monkeypatch.setattr(dataset, "DEBIAN", tmp_path / "debian")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def bad_files(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for name in dataset.FILES:
        (folder / name).write_bytes(b"cut off")
    return folder


def test_data_that_are_nowhere_are_no_failure(nowhere: Path) -> None:
    ((state, command),) = found([host.examine_data()]).values()
    assert (state, "load_fashion_mnist" in str(command)) == ("absent", True)
    # Nothing was downloaded, and nothing left behind.
    assert list(nowhere.iterdir()) == []


def test_altered_data_are_reported_by_file(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = bad_files(nowhere / "cache" / "parallel-core" / "fashion-mnist")
    assert found([host.examine_data()]) == {"Fashion-MNIST": ("broken", f"rm -r {folder}")}
    own = bad_files(nowhere / "own")
    # A folder that is named is never removed, however it is written.
    for named in (f"{own}", f"{own}/"):
        monkeypatch.setenv("PARALLEL_CORE_DATA", named)
        finding = host.examine_data()
        assert f"{own}/train-images-idx3-ubyte is not the original" in cause(finding)
        assert found([finding]) == {"Fashion-MNIST": ("broken", "unset PARALLEL_CORE_DATA")}


def test_a_cache_that_cannot_be_written_to_and_a_full_disk(monkeypatch: pytest.MonkeyPatch, nowhere: Path) -> None:
    monkeypatch.setattr(host, "ENOUGH_BYTES", 2**80)
    assert found(host.examine_caches({}))["cache"] == ("doubtful", f"df -h {nowhere}")
    monkeypatch.undo()
    # Not even for root.
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nothing")
    cache = ("broken", 'export XDG_CACHE_HOME="$(mktemp -d)"')
    assert found(host.examine_caches({})) == {"cache": cache, "temporary files": FINE}


def test_ports() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        bound.listen()
        port = bound.getsockname()[1]
        findings = found(host.examine_ports(port))
    state, command = findings.pop("torchrun's port")
    assert (findings, state) == ({"loopback": FINE}, "doubtful")
    assert str(command).startswith("torchrun --master-port ")
    assert str(port) not in str(command)
    assert found(host.examine_ports(port)) == {"loopback": FINE, "torchrun's port": FINE}


@pytest.mark.parametrize(
    ("lines", "required"),
    [
        (["click>=8", "click>=99; python_version < '3'", "click>=999; extra == 'torch'"], FINE),
        (["rich", "no-such-package>=2", "click>=999"], ("broken", "pip install 'no-such-package>=2' 'click>=999'")),
    ],
)
def test_packages_are_compared_with_what_is_required(
    monkeypatch: pytest.MonkeyPatch, lines: list[str], required: Found
) -> None:
    monkeypatch.setattr(host, "requirements", lambda: lines)
    expected = {"parallel-core": FINE, "required packages": required}
    assert found(host.examine_packages()) == expected


def test_a_checkout_that_is_not_installed_says_what_it_requires(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "installed_version", lambda _: None)
    assert any(line.startswith("click>=") for line in loading.requirements())
    assert found(host.examine_packages()) == {"parallel-core": FINE, "required packages": FINE}


def test_commands_are_for_this_python_if_the_shell_s_pip_is_another_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "my python"
    monkeypatch.setattr(host.sys, "executable", str(own))
    monkeypatch.setenv("PATH", "")
    bare_pip = Diagnosis("a cause", "pip uninstall --yes mxnet && pip install numpy")
    command = f"'{own}' -m pip uninstall --yes mxnet && '{own}' -m pip install numpy"
    assert host.for_this_python(bare_pip).command == command
    other = Diagnosis("a cause", "elsewhere/bin/pip install numpy")
    assert host.for_this_python(other) == other
    # A pip beside the Python that runs is its own.
    (tmp_path / "pip").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert host.for_this_python(bare_pip) == bare_pip


SERVER = "unset DMLC_ROLE DMLC_PS_ROOT_URI DMLC_PS_ROOT_PORT DMLC_NUM_WORKER DMLC_NUM_SERVER"


@pytest.mark.parametrize(
    ("environment", "name", "state", "unset"),
    [
        ({"MXNET_ENGINE_TYPE": "NaivEngine"}, "MXNET_ENGINE_TYPE", "broken", "unset MXNET_ENGINE_TYPE"),
        ({"DMLC_ROLE": "server"}, "DMLC_ROLE", "broken", SERVER),
        ({"MXNET_ENGINE_TYPE": "NaiveEngine"}, "MXNET_ENGINE_TYPE", "fine", None),
        ({"MXNET_CPU_TEMP_COPY": "4"}, "MXNET_CPU_TEMP_COPY", "fine", None),
        ({"MXNET_OTHER": "1"}, "MXNET_OTHER", "doubtful", "unset MXNET_OTHER"),
        ({"OMP_NUM_THREADS": "2"}, "OMP_NUM_THREADS", "fine", None),
        ({"OPENBLAS_CORETYPE": "Haswell"}, "OPENBLAS_CORETYPE", "fine", None),
        ({"OMP_NUM_THREADS": "4,2"}, "OMP_NUM_THREADS", "fine", None),
        ({"OMP_NUM_THREADS": "many"}, "OMP_NUM_THREADS", "doubtful", "unset OMP_NUM_THREADS"),
        ({"MKL_NUM_THREADS": "0"}, "MKL_NUM_THREADS", "doubtful", "unset MKL_NUM_THREADS"),
        ({"GOMP_CPU_AFFINITY": "0"}, "GOMP_CPU_AFFINITY", "doubtful", "unset GOMP_CPU_AFFINITY"),
        ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "a"}, "RANK", "doubtful", "unset RANK WORLD_SIZE MASTER_ADDR"),
        ({"DMLC_ROLE": "worker", "DMLC_X": "2"}, "DMLC_ROLE", "doubtful", "unset DMLC_ROLE DMLC_X"),
        ({"DMLC_ROLE": "worker", "PS_VERBOSE": "2"}, "DMLC_ROLE", "doubtful", "unset DMLC_ROLE PS_VERBOSE"),
        ({"DMLC_NUM_SERVER": "1"}, "DMLC_NUM_SERVER", "doubtful", "unset DMLC_NUM_SERVER"),
        ({"PORT": "8080"}, "PORT", "doubtful", "unset PORT"),
        ({"CUDA_LAUNCH_BLOCKING": "1"}, "CUDA_LAUNCH_BLOCKING", "doubtful", "unset CUDA_LAUNCH_BLOCKING"),
    ],
)
def test_a_variable_that_is_set_is_told_with_what_it_does(
    environment: dict[str, str], name: str, state: str, unset: str | None
) -> None:
    findings = found(examine_settings(environment, [MXNET]))
    assert findings[name] == (state, unset)
    # Nothing else is wrong.
    assert [other for other, has in findings.items() if has != FINE] == ([] if state == "fine" else [name])


def test_what_concerns_mxnet_alone_does_no_harm_without_it_and_ps_s_format_does_not_concern_it() -> None:
    assert found(examine_settings({"PS_FORMAT": "pid,comm"}, [MXNET])) == {}
    findings = found(examine_settings({"MXNET_ENGINE_TYPE": "NaivEngine"}, [TORCH]))
    assert findings["MXNET_ENGINE_TYPE"][0] == "doubtful"


VARIABLES = st.sampled_from(["OMP_NUM_THREADS", "MXNET_ENGINE_TYPE", "MXNET_X", "DMLC_ROLE", "RANK", "PS_VERBOSE"])


@given(st.dictionaries(VARIABLES | st.text(), st.text()))
def test_commands_only_ever_unset_what_is_set(environment: dict[str, str]) -> None:
    for finding in examine_settings(environment, [MXNET]):
        if finding.diagnosis is not None:
            unset, *names = finding.diagnosis.command.split()
            assert unset == "unset"
            assert {*names} & {*environment}
