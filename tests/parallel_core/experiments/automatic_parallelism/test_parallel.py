"""The verdict of `parallel` follows from the numbers."""

import math
from typing import Any

import pytest

from backends import Backend
from parallel_core.experiments import changes
from parallel_core.experiments.automatic_parallelism import parallel
from parallel_core.measurement.confidence_intervals import Interval
from parallel_core.measurement.result import Case

SMALL: dict[str, Any] = {"size": 64, "rounds": 2, "budget": 600.0}


@pytest.mark.parametrize(
    ("speedup", "sentence"),
    [
        (0.7, "got in each other's way"),
        (1.0, "took turns"),
        (1.35, "overlapped in part: together was 1.35 (1.30–1.40) ×"),
        (1.9, "worked at the same time: together was 1.90 (1.85–1.95) ×"),
    ],
)
def test_parallel(speedup: float, sentence: str) -> None:
    assert sentence in parallel.verdict(Interval(speedup, speedup - 0.05, speedup + 0.05), 2)


@pytest.mark.parametrize(
    ("low", "high", "sentence"),
    [
        (0.8, 2.1, "The noise leaves open whether the devices worked at the same time"),
        (1.1, 2.1, "The devices overlapped, and the noise leaves open how far"),
        (0.5, 0.95, "got in each other's way"),
        (-math.inf, math.inf, "The noise leaves open"),
    ],
)
def test_no_more_is_said_than_the_interval_shows(low: float, high: float, sentence: str) -> None:
    assert sentence in parallel.verdict(Interval(1.2, low, high), 2)


@pytest.mark.parametrize(
    ("speedup", "cores", "words"),
    [
        (Interval(1.9, 1.85, 1.95), 2.0, "(--engine sync): the devices should take turns"),
        (Interval(1.0, 0.95, 1.05), 2.0, "Larger products (--size 200)"),
        (Interval(1.0, 0.95, 1.05), 1.0, "More cores than 1: 2 threads of devices share them."),
        (Interval(1.2, 0.5, 2.1), 2.0, "--rounds 20 --budget 60"),
    ],
)
def test_what_would_change_it_follows_from_the_interval_and_the_cores(
    queueing: Backend, monkeypatch: pytest.MonkeyPatch, speedup: Interval, cores: float, words: str
) -> None:
    monkeypatch.setattr(changes, "usable_cores", lambda: cores)
    queueing.devices *= 2
    assert words in parallel.what_would_change(queueing, speedup, 100)


def test_the_times_are_told() -> None:
    parts = [Case("any", (1.0,), (0.5,))] * 2
    assert parallel.about_times(parts, Case("any", (1.25,), (0.5,))) == (
        "One after the other 2 devices took 2.00 s for 50 products each, all together 1.25 s."
    )
