"""A comparison in the terminal: the answer on one screen, tables that fit, and reasons."""

from collections.abc import Callable

import pytest

from parallel_core.comparison.analysis import analyse
from parallel_core.comparison.cells import Cell, CellResults, Comparison
from parallel_core.comparison.screen import screen_of
from parallel_core.terminal.comparison import show_comparison, show_screen
from tests.parallel_core.comparison.made_up import (
    ONE,
    comparison,
    every_chart,
    failed,
    measured,
    parallel,
    times,
    with_figures,
)
from tests.parallel_core.comparison.test_account import scaled
from tests.parallel_core.terminal.printed import in_words, printed


def shown(compared: Comparison, width: int = 100, show: Callable[..., None] = show_comparison) -> list[str]:
    return printed(show, analyse(compared), width=width).splitlines()


@pytest.mark.parametrize("engines", [("async", "sync"), ("async",)])
def test_the_answer_fits_one_screen(engines: tuple[str, ...]) -> None:
    names = ("mxnet", "torch", "jax")[: 1 + len(engines)]
    cells = [
        measured(Cell(experiment, name, engine), [seconds * one for one in ONE])
        for experiment in ("async", "parallel", "overlap", "data-parallel")
        for engine in engines
        for name, seconds in zip(names, (1.0, 2.0, 0.5), strict=False)
    ]
    lines = shown(comparison(*cells), 80, show_screen)
    assert len(lines) <= 28
    assert all(len(line) <= 80 for line in lines)
    assert sum(" slower" in line for line in lines) == 4


@pytest.mark.parametrize("width", [60, 80])
def test_more_than_two_frameworks_are_a_row_each_and_each_pair_has_a_heading(width: int) -> None:
    of = {"mxnet": 1, "torch": 2, "jax": 4}
    cells = [measured(parallel(name), times(factor)) for name, factor in of.items()]
    lines = [line.strip() for line in shown(comparison(*cells), width, show_screen)]
    assert [line.split()[0] for line in lines if " of 2" in line] == ["MXNet", "PyTorch", "JAX"]
    assert [line for line in lines if " against " in line] == ["PyTorch against MXNet", "JAX against MXNet"]


def with_speedups(speedups: tuple[float, ...]) -> CellResults:
    return with_figures(measured(parallel("mxnet"), ONE), speedups)


def test_a_figure_that_touches_two_bands_is_marked() -> None:
    doubted = with_speedups((1.9, 1.3, 1.8, 1.4, 1.6))
    lines = shown(comparison(doubted, measured(parallel("torch"), ONE)), 80, show_screen)
    (row,) = (line for line in lines if "Devices at once" in line)
    assert row.count("?") == 1
    assert "touches two bands" in " ".join(lines)


@pytest.mark.parametrize(
    ("speedups", "written"),
    [((2.05, 1.95, 2.1, 2.2, 1.9), "2.05 of 2 !"), ((2.5, 2.51, 2.49, 2.5, 2.5), "impossible")],
)
def test_what_is_more_than_possible_is_marked_or_withheld(speedups: tuple[float, ...], written: str) -> None:
    ((_, figures),) = screen_of(analyse(comparison(with_speedups(speedups)))).rows
    assert figures == (written,)


@pytest.mark.parametrize("width", [80, 100])
def test_tables_fit(width: int) -> None:
    compared = every_chart()
    assert all(len(line) <= width for line in shown(compared, width))
    missing = shown(comparison(measured(parallel("mxnet"), ONE), failed(parallel("torch"))), width)
    (row,) = (line for line in missing if line.strip().startswith("torch async"))
    assert "failed" in row


def test_a_unit_that_is_slower_than_its_case_is_pointed_out() -> None:
    doubtful = in_words(" ".join(shown(comparison(scaled(parallel("mxnet"), 1, 1.2)))))
    assert "as one unit its operations took 1.20 × its time" in doubtful
    assert "as one unit" not in " ".join(shown(comparison(scaled(parallel("mxnet"), 1, 1.0))))
