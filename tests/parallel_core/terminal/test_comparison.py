"""A comparison's tables: what they say of kernels and scheduling, and that they fit."""

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from parallel_core.comparison.analysis import analyse
from parallel_core.comparison.cells import Comparison
from parallel_core.comparison.difference import compare_with_old
from parallel_core.terminal.comparison import show_comparison
from parallel_core.terminal.difference import show_difference
from tests.parallel_core.comparison.made_up import comparison, every_chart, failed, measured, parallel
from tests.parallel_core.comparison.test_factors import ONE, scaled

WIDTHS = (80, 100)


def shown(compared: Comparison, width: int = 100) -> list[str]:
    stream = StringIO()
    show_comparison(analyse(compared), Console(file=stream, width=width))
    return stream.getvalue().splitlines()


def row_of(lines: list[str], side: str) -> list[str]:
    """Return a row with the lines that its last cell goes on for, as words."""
    (start,) = (place for place, line in enumerate(lines) if line.strip().startswith(side))
    following = lines[start + 1 :]
    count = next((place for place, line in enumerate(following) if not line.startswith(" " * 20)), len(following))
    return " ".join(lines[start : start + 1 + count]).split()


@pytest.mark.parametrize("width", WIDTHS)
def test_factors_stand_beside_the_ratio_with_what_was_shown(width: int) -> None:
    compared = comparison(
        scaled(parallel("mxnet"), 2, 1.9), scaled(parallel("torch"), 1, 0.7), measured(parallel("numpy"), ONE)
    )
    lines = shown(compared, width)
    assert all(len(line) <= width for line in lines)
    # The answer comes first: what the figures mean, then each framework against the first.
    assert lines[0].startswith("- ")
    assert len([line for line in lines if line.startswith("- parallel: ")]) == 2
    row = row_of(lines, "torch async")
    place = row.index("×")
    assert (row[place - 1], row[place + 1]) == ("0.37", "1.36")
    words = " ".join(row)
    for said in ("faster", "computes faster", "schedules worse"):
        first, *rest = said.split()
        assert first in words
        assert all(word in words.partition(first)[2] for word in rest)
    assert "×" not in row_of(lines, "numpy async")


@pytest.mark.parametrize("width", WIDTHS)
def test_tables_fit(width: int) -> None:
    compared = every_chart()
    assert all(len(line) <= width for line in shown(compared, width))
    missing = shown(comparison(measured(parallel("mxnet"), ONE), failed(parallel("torch"))), width)
    assert "failed" in row_of(missing, "torch async")


def test_a_change_is_shown_with_its_factors() -> None:
    old = comparison(scaled(parallel("mxnet"), 1, 0.8))
    new = comparison(scaled(parallel("mxnet"), 1.1, 0.88))
    stream = StringIO()
    show_difference(compare_with_old(old, new), Console(file=stream, width=100))
    assert "1.10 × 1.00" in stream.getvalue()
    assert "computes slower" in stream.getvalue()
    assert "schedules" not in stream.getvalue()


def test_a_unit_that_is_slower_than_its_case_is_pointed_out() -> None:
    doubtful = scaled(parallel("mxnet"), 1, 1.2)
    assert replace(doubtful).results[0].cases[0].bare_seconds
    text = " ".join(" ".join(shown(comparison(doubtful))).split())
    assert "as one unit its operations took 1.20 × as long, so what is said of kernels and scheduling is" in text
    assert "doubtful" not in " ".join(shown(comparison(scaled(parallel("mxnet"), 1, 1.0))))
