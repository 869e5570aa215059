"""What others take of the cores is what the cores worked, less what this process did."""

from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from parallel_core.system import machine
from parallel_core.system.machine import (
    MachineSample,
    MachineWatch,
    describe_machine,
    joined_watches,
    processor_quota,
    sample_machine,
    watched,
)

QUIET = MachineWatch(10.0, 2.0, 0.01, 0.0, 0.0, 2000.0, 2000.0)
STAT = """cpu  999 999 999 999 999 999 999 999 0 0
cpu0 100 20 30 400 50 6 7 8 0 0
cpu1 1 2 3 4 5 6 7 8 0 0
cpu2 1000 0 0 0 0 0 0 500 0 0
intr 1 2 3
"""
FILES = {
    "parallel_core.system.machine.PRESSURE": "pressure",
    "backends.host.cores.PROCESSORS": "cpuinfo",
}


@pytest.fixture(autouse=True)
def _two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "core_numbers", lambda: [0, 1])
    monkeypatch.setattr(machine, "available_cores", lambda: 2)
    monkeypatch.setattr(machine, "processor_quota", lambda: None)


@pytest.mark.parametrize(
    ("limit", "cores"), [("max 100000", None), ("250000 100000", 2.5), ("nonsense", None)]
)
def test_a_container_s_share_of_the_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, cores: float | None
) -> None:
    monkeypatch.setattr(machine, "CONTROL_GROUP", tmp_path)
    assert processor_quota() is None
    (tmp_path / "cpu.max").write_text(limit)
    assert processor_quota() == cores


def test_a_container_s_share_of_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "CONTROL_GROUP", tmp_path)
    of_machine = machine.free_memory()
    assert of_machine > 0
    (tmp_path / "memory.current").write_text("3000\n")
    (tmp_path / "memory.max").write_text("5000\n")
    assert machine.free_memory() == 2000
    (tmp_path / "memory.max").write_text("2000\n")
    assert machine.free_memory() == 0
    (tmp_path / "memory.max").write_text("max\n")
    assert machine.free_memory() == pytest.approx(of_machine, rel=0.5)


def test_only_the_cores_of_this_process_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stat").write_text(STAT)
    (tmp_path / "pressure").write_text(
        "some avg10=9 avg60=8 avg300=7 total=2500000\nfull avg10=0 total=0\n"
    )
    (tmp_path / "cpuinfo").write_text("cpu MHz\t\t: 2100.5\nmodel name : a\ncpu MHz\t\t: 3000.0\n")
    for constant, file in FILES.items():
        monkeypatch.setattr(constant, tmp_path / file)
    assert describe_machine()["processor"] == "a"
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path))
    monkeypatch.setattr(machine, "CONFIGURED_CORES", 3)
    sample = sample_machine()
    first_core, second_core = 100 + 20 + 30 + 6 + 7, 1 + 2 + 3 + 6 + 7
    assert sample.worked == pytest.approx((first_core + second_core) / 100)
    assert sample.stolen == (8 + 8) / 100
    assert sample.waited == 2.5
    assert sample.mhz == (2100.5, 3000.0)
    # Which cores psutil lists is not known if one of four is switched off.
    monkeypatch.setattr(machine, "CONFIGURED_CORES", 4)
    assert sample_machine().worked is None


def test_what_the_system_does_not_count_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "PROCFS_PATH", "/nowhere")
    for constant in FILES:
        monkeypatch.setattr(constant, Path("/nowhere"))
    watch = watched(sample_machine(), sample_machine())
    assert watch.others_share is None
    assert watch.stolen_share is None
    assert watch.waiting_share is None
    assert watch.fastest_mhz is None
    assert not watch.is_disturbed
    assert watch.in_words() == ()


@pytest.mark.parametrize(
    ("used_here", "worked", "stolen", "others_share", "is_disturbed"),
    [
        # Of four core-seconds; what this process did itself is no disturbance.
        (4.0, 4.0, 0.0, 0.0, False),
        (2.0, 4.0, 0.0, 0.5, True),
        (3.7, 4.0, 0.0, 0.075, True),
        (3.9, 4.0, 0.0, 0.025, False),
        (2.0, 2.0, 1.0, 0.0, True),
        # The counts are coarse: a little less than was used is nothing.
        (2.0, 1.9, 0.0, 0.0, False),
    ],
)
def test_others_share_of_the_cores(
    used_here: float, worked: float, stolen: float, others_share: float, is_disturbed: bool
) -> None:
    before = MachineSample(10.0, 1.0, 7.0, 3.0, 5.0, (2000.0, 1000.0))
    after = MachineSample(12.0, 1.0 + used_here, 7.0 + worked, 3.0 + stolen, 6.0, (1500.0, 800.0))
    watch = watched(before, after)
    assert watch.others_share == pytest.approx(others_share)
    assert watch.stolen_share == pytest.approx(stolen / 4)
    assert watch.waiting_share == 0.5
    assert watch.slowest_mhz == 1500.0
    assert watch.fastest_mhz == 2000.0
    assert watch.is_disturbed == is_disturbed
    sentences = watch.in_words()
    of_others = [sentence for sentence in sentences if sentence.startswith("Other processes took ")]
    assert bool(of_others) == is_disturbed
    assert sentences[-1].startswith("The cores' clock ran at 1,500 to 2,000 MHz")


def test_too_little_to_be_counted_is_no_disturbance() -> None:
    assert not replace(QUIET, watched_seconds=0.1, others_share=0.4).is_disturbed
    assert replace(QUIET, watched_seconds=1.0, others_share=0.4).is_disturbed


def test_watches_are_joined_by_their_lengths() -> None:
    loud = replace(
        QUIET,
        watched_seconds=30.0,
        others_share=0.41,
        stolen_share=None,
        slowest_mhz=900.0,
        repeated_rounds=2,
    )
    joined = joined_watches((QUIET, loud), repeated_rounds=1)
    assert joined is not None
    assert joined.others_share == pytest.approx((10 * 0.01 + 30 * 0.41) / 40)
    assert joined.watched_seconds == 40.0
    assert joined.stolen_share == 0.0
    assert joined.slowest_mhz == 900.0
    assert joined.repeated_rounds == 3
    assert "Rounds repeated: 3." in joined.in_words()[0]
    assert joined_watches(()) is None


def test_a_quota_leaves_less_than_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "processor_quota", lambda: 1.5)
    watch = watched(sample_machine(), sample_machine())
    assert watch.cores == 1.5
    (sentence,) = replace(watch, others_share=0.0, slowest_mhz=None).in_words(threads=2)
    assert sentence == "2 threads of devices share the time of 1.5 cores: not all can work at once."
