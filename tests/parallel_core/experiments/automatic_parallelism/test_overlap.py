"""The verdict of `overlap` follows from the numbers."""

from typing import Any

import pytest

from parallel_core.experiments.automatic_parallelism import overlap
from parallel_core.measurement.result import Case

SMALL: dict[str, Any] = {"size": 64, "copies": 2, "rounds": 2, "budget": 600.0}


def case(seconds: float) -> Case:
    return Case("any", (seconds,), (seconds,))


@pytest.mark.parametrize(
    ("efficiency", "sentence"),
    [
        (-0.5, "took longer than one after the other"),
        (0.0, "Nothing overlapped"),
        (0.5, "50% of the shorter part was hidden"),
        (0.95, "The overlap is real: 95%"),
    ],
)
def test_overlap(efficiency: float, sentence: str) -> None:
    assert sentence in overlap.verdict(efficiency, case(1), case(1))


def test_overlap_of_unequal_parts_is_called_so() -> None:
    assert "unequal" in overlap.verdict(0.5, case(1), case(3))
    assert "unequal" not in overlap.verdict(0.5, case(1), case(1.5))
