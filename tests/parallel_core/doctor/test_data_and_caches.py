"""Data and caches are looked at without downloading anything."""

from pathlib import Path

import pytest

from parallel_core.doctor import data_and_caches
from parallel_core.training import dataset
from tests.parallel_core.doctor.findings import command


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
    (finding,) = data_and_caches.examine_data().findings
    assert finding.state == "absent"
    assert "load_fashion_mnist" in command(finding)
    # Nothing was downloaded, and nothing left behind.
    assert list(nowhere.iterdir()) == []


def test_altered_data_are_reported_by_file(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = bad_files(nowhere / "cache" / "parallel-core" / "fashion-mnist")
    (finding,) = data_and_caches.examine_data().findings
    assert finding.state == "broken"
    assert command(finding) == f"rm -r {folder}"
    own = bad_files(nowhere / "own")
    monkeypatch.setenv("PARALLEL_CORE_DATA", str(own))
    (finding,) = data_and_caches.examine_data().findings
    assert finding.diagnosis is not None
    assert f"{own}/train-images-idx3-ubyte is not the original" in finding.diagnosis.cause
    assert command(finding) == "unset PARALLEL_CORE_DATA"


def test_a_cache_that_cannot_be_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    # Not even for root.
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nothing")
    cache, temporary = data_and_caches.examine_caches({}).findings
    assert (cache.state, temporary.state) == ("broken", "fine")
    assert command(cache) == 'export XDG_CACHE_HOME="$(mktemp -d)"'


def test_a_full_disk(monkeypatch: pytest.MonkeyPatch, nowhere: Path) -> None:
    monkeypatch.setattr(data_and_caches, "ENOUGH_BYTES", 2**80)
    cache, _ = data_and_caches.examine_caches({}).findings
    assert cache.state == "doubtful"
    assert command(cache) == f"df -h {nowhere}"
