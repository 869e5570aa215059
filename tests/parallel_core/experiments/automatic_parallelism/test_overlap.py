"""The verdict of `overlap` follows from the numbers."""

from typing import Any

import pytest

from backends import Backend
from parallel_core.experiments.automatic_parallelism import overlap
from parallel_core.measurement.confidence_intervals import Interval
from parallel_core.measurement.result import Case

SMALL: dict[str, Any] = {"size": 64, "copies": 2, "rounds": 2, "budget": 600.0}

HALF = Interval(0.5, 0.4, 0.6)


def case(seconds: float) -> Case:
    return Case("any", (seconds,), (seconds,))


@pytest.mark.parametrize(
    ("efficiency", "sentence"),
    [
        (Interval(-0.5, -0.7, -0.3), "Together took longer than one after the other"),
        (Interval(0.0, -0.1, 0.1), "Nothing overlapped"),
        (Interval(0.5, 0.4, 0.6), "0.50 (0.40–0.60) of the shorter part was hidden"),
        (Interval(0.95, 0.9, 1.0), "The overlap is real: 0.95"),
        # Told as a disturbance of the computation, once.
        (Interval(-0.33, -0.93, 0.27), "The noise leaves open whether anything overlapped"),
        (Interval(-1.59, -3.78, 0.60), "The noise leaves open whether anything overlapped"),
    ],
)
def test_overlap(efficiency: Interval, sentence: str) -> None:
    assert sentence in overlap.verdict(efficiency, "async")


@pytest.mark.parametrize("efficiency", [Interval(0.69, 0.67, 0.72), Interval(0.95, 0.9, 1.0)])
def test_what_queues_nothing_is_never_said_to_overlap(efficiency: Interval) -> None:
    told = overlap.verdict(efficiency, "sync")
    assert told.startswith("Nothing was queued, so a part was slower alone")
    assert "hidden" not in told
    assert "real" not in told


def test_overlap_of_unequal_parts_is_called_so(queueing: Backend) -> None:
    told = overlap.what_would_change(queueing, HALF, case(1), case(3), 9)
    assert "Parts that take equally long (--copies 3): " in told
    assert "unequal" not in overlap.what_would_change(queueing, HALF, case(1), case(1.5), 9)


@pytest.mark.parametrize(
    ("efficiency", "variants", "words"),
    [
        (Interval(0.95, 0.9, 1.0), (), "behind the products (--variant copy-on-compute-queue)"),
        (Interval(0.0, -0.1, 0.1), ("copy-on-compute-queue",), "(without --variant copy-on-compute-queue)"),
        (Interval(0.0, -0.1, 0.1), (), "More cores than "),
        (Interval(-0.5, -0.7, -0.3), (), "More cores than "),
        (Interval(0.2, -0.5, 0.9), (), "--rounds 20 --budget 60"),
    ],
)
def test_what_would_change_it_follows_from_the_interval(
    queueing: Backend, efficiency: Interval, variants: tuple[str, ...], words: str
) -> None:
    queueing.variants = variants
    assert words in overlap.what_would_change(queueing, efficiency, case(1), case(1), 4)


def test_the_times_are_told() -> None:
    assert overlap.about_times(case(1), case(2), case(2.5)) == (
        "Computing alone took 1,000 ms, copying alone 2,000 ms, and both together 2,500 ms."
    )
