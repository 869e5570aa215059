"""The verdict of `parallel` follows from the numbers."""

from typing import Any

import pytest

from parallel_core.experiments.automatic_parallelism import parallel

SMALL: dict[str, Any] = {"size": 64, "rounds": 2, "budget": 600.0}


@pytest.mark.parametrize(
    ("speedup", "sentence"),
    [
        (0.7, "got in each other's way"),
        (1.0, "took turns"),
        (1.3, "overlapped in part: 1.30 ×"),
        (1.9, "worked at the same time: together was 1.90 ×"),
    ],
)
def test_parallel(speedup: float, sentence: str) -> None:
    assert sentence in parallel.verdict(speedup, 2)
