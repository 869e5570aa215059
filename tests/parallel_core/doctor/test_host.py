"""Cores and memory are those that a container leaves to this process."""

from pathlib import Path

import pytest

from parallel_core.doctor import host
from parallel_core.system import machine
from tests.parallel_core.doctor.findings import command


@pytest.mark.parametrize(
    ("limit", "state", "expected_command"),
    [
        ("max 100000", "fine", None),
        ("800000 100000", "fine", None),
        ("250000 100000", "doubtful", "taskset --cpu-list 4,5 parallel-core compare"),
        ("nonsense", "fine", None),
    ],
)
def test_a_container_s_share_of_the_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, state: str, expected_command: str | None
) -> None:
    monkeypatch.setattr(machine, "CONTROL_GROUP", tmp_path)
    monkeypatch.setattr(host, "core_numbers", lambda: [4, 5, 6, 7])
    monkeypatch.setattr(host, "available_cores", lambda: 4)
    (tmp_path / "cpu.max").write_text(limit)
    (tmp_path / "memory.max").write_text(str(2**20))
    finding = host.examine_cores()
    assert finding.state == state
    assert expected_command == (finding.diagnosis.command if finding.diagnosis else None)
    assert host.examine_memory().figures["total_bytes"] == 2**20


def test_one_core_shows_nothing_parallel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "CONTROL_GROUP", tmp_path)
    monkeypatch.setattr(host, "available_cores", lambda: 1)
    monkeypatch.setattr(host.os, "cpu_count", lambda: 8)
    assert command(host.examine_cores()) == "taskset --cpu-list 0-7 parallel-core doctor"


def test_without_a_limit_the_memory_is_the_machine_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "CONTROL_GROUP", tmp_path)
    unlimited = host.examine_memory().figures["total_bytes"]
    (tmp_path / "memory.max").write_text("max")
    assert host.examine_memory().figures["total_bytes"] == unlimited > 0
