"""What a container leaves of cores and memory; data and caches, without downloading anything; ports."""

import socket
from pathlib import Path

import pytest

from parallel_core.doctor import host
from parallel_core.system import machine
from parallel_core.training import dataset
from tests.parallel_core.doctor.findings import FINE, cause, found


@pytest.fixture
def limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A control group without limits, until they are written into its folder."""
    monkeypatch.setattr(machine, "CONTROL_GROUP", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ("max 100000", FINE),
        ("800000 100000", FINE),
        ("250000 100000", ("doubtful", "taskset --cpu-list 4,5 parallel-core compare")),
        ("nonsense", FINE),
    ],
)
def test_a_container_s_share_of_cores_and_memory(
    limits: Path, monkeypatch: pytest.MonkeyPatch, limit: str, expected: tuple[str, str | None]
) -> None:
    monkeypatch.setattr(host, "core_numbers", lambda: [4, 5, 6, 7])
    monkeypatch.setattr(host, "available_cores", lambda: 4)
    unlimited = host.examine_memory().figures["total_bytes"]
    (limits / "cpu.max").write_text(limit)
    (limits / "memory.max").write_text("max")
    assert found([host.examine_cores()]) == {"CPU cores": expected}
    assert host.examine_memory().figures["total_bytes"] == unlimited > 0
    (limits / "memory.max").write_text(str(2**20))
    assert host.examine_memory().figures["total_bytes"] == 2**20


@pytest.mark.usefixtures("limits")
def test_one_core_shows_nothing_parallel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "available_cores", lambda: 1)
    monkeypatch.setattr(host.os, "cpu_count", lambda: 8)
    expected = ("doubtful", "taskset --cpu-list 0-7 parallel-core doctor")
    assert found([host.examine_cores()]) == {"CPU cores": expected}


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
    monkeypatch.setenv("PARALLEL_CORE_DATA", str(own))
    finding = host.examine_data()
    assert f"{own}/train-images-idx3-ubyte is not the original" in cause(finding)
    assert found([finding]) == {"Fashion-MNIST": ("broken", "unset PARALLEL_CORE_DATA")}
    # A folder that is named is never removed, however it is written.
    monkeypatch.setenv("PARALLEL_CORE_DATA", f"{own}/")
    assert found([host.examine_data()]) == {"Fashion-MNIST": ("broken", "unset PARALLEL_CORE_DATA")}


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
