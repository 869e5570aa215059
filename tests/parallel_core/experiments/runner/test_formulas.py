"""A metric's interval follows from the times that its formula touches.

What others took of the cores widens the interval so that the figure of a quiet machine lies in it.
"""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.runner.formulas import interval_of, ratio
from parallel_core.experiments.runner.metrics import Metric
from parallel_core.measurement.confidence_intervals import Interval
from parallel_core.measurement.over_rounds import times_as_long
from parallel_core.measurement.result import LEAST_SHARE, Case
from parallel_core.system.machine import MachineWatch
from tests.parallel_core.experiments.runner.pretended import case
from tests.parallel_core.experiments.runner.test_metrics import on

HALF = Metric("half", lambda times: times["part"] / times["whole"])
CASES = {
    "part": case("part", 1.0, 1.1, 0.9),
    "whole": case("whole", 2.0, 2.2, 1.8),
    "other": case("other", 9, 1, 5),
}


def test_it_is_of_the_medians_with_an_interval_over_the_rounds_that_it_touches() -> None:
    half = HALF.measured(CASES)
    assert half is not None
    assert half.estimate == 0.5
    assert 0.4 < half.low < 0.5 < half.high < 0.6
    # Rounds are resampled whole: what is common to part and whole is no noise, and the other case
    # is not looked at.
    assert HALF.measured({**CASES, "other": case("other", 1e9)}) == half
    dispatched = interval_of(lambda times: times.dispatch("part") / times["part"], CASES)
    assert dispatched is not None
    assert dispatched.estimate == 0.5


ALONE = ("on cpu:1 alone", "on cpu:2 alone", "on all together")
BY_THE_BOOK = ("run", "copy the book's way", "together the book's way")
THREE = ("products on cpu:1", "products on cpu:2", "copies both ways", "all at once")
SECONDS_OF_LAST_CASE: Mapping[tuple[str, str, tuple[str, ...]], Mapping[str, float]] = {
    ("async", "dispatch_fraction", ("10 products",)): {"partly": 1},
    ("async", "wait_fraction", ("wait for one result", "waitall")): {
        "selective": 10,
        "not-selective": 1,
    },
    ("parallel", "parallel_speedup", ALONE): {
        "hindered": 2.8,
        "serial": 2,
        "partly": 1.33,
        "parallel": 1,
    },
    ("overlap", "overlap_efficiency", ("run", "copy", "run and copy together")): {
        "hindered": 2.8,
        "serial": 2,
        "partly": 1.5,
        "hidden": 1,
    },
    ("overlap", "book_overlap_efficiency", BY_THE_BOOK): {"serial": 2, "hidden": 1},
    ("three-way", "saved_fraction", THREE): {
        "hindered": 3.8,
        "serial": 3,
        "partly": 2.3,
        "parallel": 1.5,
    },
}
"""By experiment, figure and cases, of which all but the last take a second: the seconds of the last
one, by what is then true.
"""


@pytest.mark.parametrize(("name", "figure", "case_names"), SECONDS_OF_LAST_CASE)
def test_what_the_times_of_an_experiment_mean(
    name: str, figure: str, case_names: tuple[str, ...]
) -> None:
    metric = EXPERIMENTS[name].metric_named(figure)
    *part_names, last_name = case_names
    parts = [case(part_name, 1, 1, 1) for part_name in part_names]
    for code, seconds in SECONDS_OF_LAST_CASE[name, figure, case_names].items():
        last = case(last_name, seconds, seconds, seconds, parts=part_names)
        assert code_of(metric, measured(metric, *parts, last)) == code


QUIET = MachineWatch(10.0, 2.0, 0.0, 0.0, 0.0, None, None)
PARALLEL, OVERLAP, DISPATCH = (
    EXPERIMENTS[name].metrics[0] for name in ("parallel", "overlap", "eager-cpu")
)


def timed(
    name: str,
    seconds: float,
    others_share: float,
    parts: tuple[str, ...] = (),
    dispatch_share: float = 0.5,
) -> Case:
    """Return a case whose three rounds took equally long, while other programs held a share of the
    cores.

    Control returned after the share `dispatch_share` of its seconds.
    """
    watch = replace(QUIET, others_share=others_share)
    dispatch_seconds = (dispatch_share * seconds,) * 3
    return Case(name, (seconds,) * 3, dispatch_seconds, parts=parts, watch=watch)


def measured(metric: Metric, *cases: Case) -> Interval:
    """Return a metric's interval over these cases, of which none may lack."""
    interval = metric.measured({case.name: case for case in cases})
    assert interval is not None
    return interval


def code_of(metric: Metric, interval: Interval) -> str:
    """Return the code of the band in which an interval lies, or an empty string."""
    band = metric.place(interval, on())
    return band.code if band else ""


def test_a_case_keeps_a_little_of_its_time_however_much_others_seem_to_have_taken() -> None:
    assert timed("all taken", 1.0, others_share=1.2).least_share == LEAST_SHARE
    assert timed("half taken", 1.0, others_share=0.5).least_share == pytest.approx(0.5)


SECONDS, SHARES = st.floats(0.5, 2.0), st.floats(0.0, 1.0)
PARTS_ON_DEVICES = ("on cpu:1 alone", "on cpu:2 alone")


@pytest.mark.parametrize(
    ("metric", "part_names", "together_name"),
    [
        (PARALLEL, PARTS_ON_DEVICES, "on all together"),
        (OVERLAP, ("run", "copy"), "run and copy together"),
    ],
    ids=["parallel", "overlap"],
)
@given(
    part_seconds=st.lists(SECONDS, min_size=2, max_size=2),
    exposed_share=SHARES,
    others_share=st.floats(0.06, 0.6),
    lost_shares=st.lists(SHARES, min_size=3, max_size=3).map(sorted),
)
def test_the_interval_of_a_loaded_machine_holds_the_figure_of_a_quiet_one(
    metric: Metric,
    part_names: tuple[str, str],
    together_name: str,
    part_seconds: list[float],
    exposed_share: float,
    others_share: float,
    lost_shares: list[float],
) -> None:
    together_seconds = max(part_seconds) + exposed_share * min(part_seconds)
    quiet = [
        timed(part_names[0], part_seconds[0], 0.0),
        timed(part_names[1], part_seconds[1], 0.0),
        timed(together_name, together_seconds, 0.0, part_names),
    ]
    # All together lose the largest share of what others hold.
    loaded = [
        timed(case.name, case.median / (1 - others_share * lost), others_share, case.parts)
        for case, lost in zip(quiet, lost_shares, strict=True)
    ]
    truth = measured(metric, *quiet).estimate
    interval = measured(metric, *loaded)
    assert interval.low <= truth <= interval.high


def test_a_speed_up_does_not_fall_and_what_was_not_disturbed_is_not_widened() -> None:
    def speedup(others_share: float) -> Interval:
        alone = [timed(name, 1.0, others_share) for name in PARTS_ON_DEVICES]
        together = timed("on all together", 1.02, others_share, PARTS_ON_DEVICES)
        return measured(PARALLEL, *alone, together)

    quiet, hardly_loaded, loaded = speedup(0.0), speedup(0.04), speedup(0.3)
    assert hardly_loaded == quiet
    assert loaded.estimate == pytest.approx(quiet.estimate)
    assert loaded.low == pytest.approx(quiet.low)
    assert loaded.high == pytest.approx(quiet.high + quiet.estimate * (1 / 0.7 - 1))
    assert code_of(PARALLEL, loaded) == "parallel"


@pytest.mark.parametrize(("dispatch_share", "code"), [(0.004, "queued"), (0.999, "not-queued")])
def test_the_time_until_control_returned_is_a_part_of_all(dispatch_share: float, code: str) -> None:
    products = timed("10 products", 1.0, 0.5, dispatch_share=dispatch_share)
    dispatched = measured(DISPATCH, products)
    assert code_of(DISPATCH, dispatched) == code
    assert dispatched.high <= 1.1


def test_a_ratio_is_as_wide_as_either_case_may_have_lost() -> None:
    metric = Metric("ratio", ratio("slow", "fast"), ratio=True)
    slow, fast = timed("slow", 4.0, 0.5), timed("fast", 1.0, 0.2)
    widened = measured(metric, slow, fast)
    unwatched = measured(metric, replace(slow, watch=None), replace(fast, watch=None))
    assert widened.low == pytest.approx(unwatched.low * (1 - 0.5))
    assert widened.high == pytest.approx(unwatched.high / (1 - 0.2))
    assert times_as_long(slow, fast).low == pytest.approx(widened.low)
