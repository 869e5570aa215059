"""How a comparison fits into a time, for any times that its processes may take."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from parallel_core.comparison.cells import Cell
from parallel_core.comparison.time_budget import (
    GPU_SIDES,
    LEAST,
    USUAL_ROUNDS,
    Fit,
    Sounding,
    fit,
    smallest,
    sounding_of,
    work_of,
)
from parallel_core.experiments import EXPERIMENTS
from parallel_core.measurement.fresh_process import Measured
from parallel_core.measurement.result import Case
from tests.parallel_core.comparison.made_up import PLAN, result

QUICK = replace(PLAN, shared=True, mode="quick", seconds=240.0, rounds=None, traces_in=Path("nowhere"))
CELLS = QUICK.cells
WORKS = {experiment.name: work_of(experiment, "quick") for experiment in QUICK.experiments}
SECONDS = st.floats(0.001, 100)
SOUNDINGS = st.builds(Sounding, start=SECONDS, fixed=SECONDS, repetition=SECONDS)
MINUTE = 60.0


def fitted(soundings: Mapping[Cell, Sounding], left: float, rounds: int | None = None, **changes: Any) -> Fit:
    return fit(replace(QUICK, rounds=rounds, **changes), soundings, left)


def every(sounding: Sounding) -> dict[Cell, Sounding]:
    return dict.fromkeys(CELLS, sounding)


@given(st.dictionaries(st.sampled_from(CELLS), SOUNDINGS), st.floats(-10, 2000), st.none() | st.integers(1, 12))
def test_the_wanted_rounds_fit_or_sizes_are_the_smallest(
    soundings: dict[Cell, Sounding], left: float, wanted: int | None
) -> None:
    one = fitted(soundings, left, wanted)
    if one.round_seconds(traced=True) + ((wanted or USUAL_ROUNDS) - 1) * one.round_seconds() > left:
        assert one.sizes == {name: dict(work.least) for name, work in WORKS.items()}


@given(st.dictionaries(st.sampled_from(CELLS), SOUNDINGS), st.floats(0, 2000), st.floats(1, 10))
def test_sizes_lie_between_the_smallest_and_the_usual_ones_and_more_time_gives_larger_ones(
    soundings: dict[Cell, Sounding], left: float, times: float
) -> None:
    less, more = (fitted(soundings, seconds, 1) for seconds in (left, times * left))
    for name, work in WORKS.items():
        for parameter, usual in work.most.items():
            # One step of the search may be lost.
            slack = 8 if more.sizes[name][parameter] < less.sizes[name][parameter] else 0
            assert work.least[parameter] <= less.sizes[name][parameter] <= more.sizes[name][parameter] + slack
            assert usual is None or more.sizes[name][parameter] <= usual


def test_where_time_is_ample_sizes_are_as_usual_and_a_run_accepts_its_budget_however_little_it_measures() -> None:
    one = fitted(every(Sounding(start=1.0, fixed=0.0, repetition=1e-4)), left=4 * MINUTE)
    assert one.sizes == {name: dict(work.most) for name, work in WORKS.items()}
    assert all(own["budget"] >= 1.0 for own in one.options.values())


def test_a_chosen_size_leaves_time_that_is_ample_to_more_rounds() -> None:
    soundings = every(Sounding(start=1.0, fixed=0.0, repetition=0.1))
    one, other = (fitted(soundings, minutes * MINUTE, mode="full") for minutes in (30, 60))
    assert one.sizes == other.sizes
    assert 10 * one.round_seconds() < 30 * MINUTE


def test_matrices_are_larger_on_gpus() -> None:
    one = fit(QUICK, every(Sounding(start=1.0, fixed=0.0, repetition=0.1)), MINUTE, GPU_SIDES)
    assert {name: own["size"] for name, own in one.options.items()} == {
        name: GPU_SIDES * sizes["size"] for name, sizes in one.sizes.items()
    }


def test_the_slowest_cell_decides_on_the_sizes() -> None:
    quick, slow = Sounding(1.0, 0.1, 0.1), Sounding(1.0, 0.1, 1.0)
    alike, one_slow = (fitted(soundings, MINUTE, 3) for soundings in (every(quick), {**every(quick), CELLS[0]: slow}))
    assert one_slow.sizes["parallel"]["size"] < alike.sizes["parallel"]["size"]
    # The other experiment keeps its share.
    assert one_slow.sizes["overlap"]["size"] >= alike.sizes["overlap"]["size"]


def test_processes_that_are_shared_start_once() -> None:
    soundings = every(Sounding(start=2.0, fixed=1.0, repetition=0.0))
    assert fitted(soundings, MINUTE).round_seconds() == 2 * 2.0 + 4 * 1.0
    assert fitted(soundings, MINUTE, shared=False).round_seconds() == 4 * 2.0 + 4 * 1.0


def test_a_cell_without_a_sounding_is_expected_to_take_as_long_as_its_experiment_s_others() -> None:
    known = {CELLS[0]: Sounding(1.0, 2.0, 0.0), CELLS[2]: Sounding(3.0, 0.0, 0.0)}
    assert list(map(fitted(known, left=0.0).cell_seconds, CELLS)) == [2.0, 2.0, 0.0, 0.0]
    assert fitted({}, left=MINUTE).sizes


def test_no_experiment_s_smallest_work_exceeds_its_usual_one() -> None:
    for experiment in EXPERIMENTS.values():
        for mode, usual in experiment.options.items():
            least = smallest(experiment, mode)
            assert all(int(least[name]) <= int(usual[name]) for name in least.keys() & usual.keys()), experiment.name
            assert set(work_of(experiment, mode).least) <= set(LEAST)


def test_a_sounding_tells_what_grows_from_what_does_not() -> None:
    cases = (
        Case("ten times", (0.1,), (0.1,), (0.1,), repeats=10, bare_seconds=(0.05,)),
        Case("once", (0.5,), (0.5,), (0.5,)),
    )
    gave = result(CELLS[0], {"run": 1.0}, cases=cases)
    # A repetition takes 10 · (0.1 + 0.05) + 0.5 s, and there was a warm-up.
    assert sounding_of(Measured(gave, 1.0, 8.0), 1.0) == Sounding(1.0, 3.0, 2.0)
    assert sounding_of(Measured(gave, 1.0, 3.0), 1.0).fixed == 0
