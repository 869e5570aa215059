"""A metric follows from the times that its formula touches, and means what the band of its whole
interval says.

What others took of the cores widens the interval so that the figure of a quiet machine lies in it.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.runner.formulas import interval_of, ratio
from parallel_core.experiments.runner.metrics import (
    CANNOT_TELL,
    LOWEST,
    WITHOUT_QUEUE,
    Band,
    Metric,
)
from parallel_core.measurement.confidence_intervals import Interval
from parallel_core.measurement.over_rounds import times_as_long
from parallel_core.measurement.result import LEAST_SHARE, Case, Counted, Result
from parallel_core.system.machine import MachineWatch
from tests.parallel_core.compare.made_up import parallel, result
from tests.parallel_core.experiments.runner.pretended import case

HALF = Metric("half", lambda times: times["part"] / times["whole"])
CASES = {
    "part": case("part", 1.0, 1.1, 0.9),
    "whole": case("whole", 2.0, 2.2, 1.8),
    "other": case("other", 9, 1, 5),
}
BANDED_METRICS = [
    metric for experiment in EXPERIMENTS.values() for metric in experiment.metrics if metric.bands
]


def on(engine: str = "async", devices: int = 2) -> Result:
    """Return a result of torch on an engine and a number of devices, which metrics may ask."""
    torch = result(parallel("torch", engine), {"any": 1.0})
    names = [f"cpu:{number}" for number in range(1, devices + 1)]
    return replace(
        torch,
        backend={**torch.backend, "devices": names},
        parameters={**torch.parameters, "workers": "1,2"},
        # With two cores for three parts a third can be saved.
        metrics={**torch.metrics, "possible_on_cores_fraction": 1 / 3},
    )


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


def test_bands_ascend_from_the_lowest_and_each_has_a_code_and_a_sentence_of_its_own() -> None:
    for metric in BANDED_METRICS:
        starts = [band.start for band in metric.bands]
        codes = {band.code for band in metric.bands}
        sentences = {band.says for band in metric.bands}
        assert starts[0] == LOWEST, metric.name
        assert starts == sorted(set(starts)), metric.name
        assert len(codes) == len(metric.bands), metric.name
        assert len(sentences) == len(metric.bands), metric.name
        for sentence in sentences:
            assert sentence[0].isupper(), sentence
            assert not sentence.endswith("."), sentence
            # Figures stand behind the sentence, and nowhere in it.
            assert not any(character.isdigit() for character in sentence), sentence


SHARE = Metric(
    "share",
    bands=(Band(LOWEST, "low", "Low"), Band(0.2, "middle", "Middle"), Band(0.8, "high", "High")),
)
FALLING = replace(SHARE, share=lambda value, _: 1 - value)


@given(
    st.sampled_from([SHARE, FALLING]),
    st.lists(st.floats(-1, 6), min_size=3, max_size=3).map(sorted),
)
@example(SHARE, [0.1, 0.5, 0.9])
def test_what_it_means_holds_for_the_whole_interval(metric: Metric, bounds: list[float]) -> None:
    low, estimate, high = bounds
    answers = metric.answers(Interval(estimate, low, high), on())

    def band_at(value: float) -> Band | str | None:
        return metric.place(Interval(value, value, value), on())

    at_low, at_estimate, at_high = band_at(low), band_at(estimate), band_at(high)
    least_share, greatest_share = sorted((metric.share(low, on()), metric.share(high, on())))
    holds_no_effect = least_share <= metric.no_effect <= greatest_share
    if at_low == at_high:
        assert answers == (at_low,)
    elif holds_no_effect:
        assert answers == ()
    else:
        assert {answers[0], answers[-1]} == {at_low, at_high}
        assert at_estimate in answers
    assert metric.answers(Interval(estimate, -math.inf, math.inf), on()) == ()
    assert metric.answers(Interval(estimate, math.nan, math.nan), on()) == ()


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_two_neighbouring_answers_are_both_said_unless_no_effect_lies_between_them(
    name: str,
) -> None:
    banded = [metric for metric in EXPERIMENTS[name].metrics if metric.bands]
    for experiment_metric in banded:
        # A share of itself, since only the bands matter.
        metric = replace(experiment_metric, share=lambda value, _: value)
        for lower, upper in pairwise(metric.bands):
            border = Interval(upper.start, upper.start - 0.01, upper.start + 0.01)
            sentence = metric.sentence(border, on()).lower()
            says_lower = lower.says.lower() in sentence
            says_upper = upper.says.lower() in sentence
            holds_no_effect = border.low <= metric.no_effect <= border.high
            if holds_no_effect:
                assert sentence.startswith(CANNOT_TELL.lower())
                assert not says_lower, sentence
                assert not says_upper, sentence
            else:
                assert sentence.endswith(f"; {CANNOT_TELL.lower()} which.")
                assert says_lower, sentence
                assert says_upper, sentence
            # Neither can be taken for decided.
            assert metric.place(border, on()) is None


@pytest.mark.parametrize("metric", BANDED_METRICS, ids=lambda metric: metric.name)
def test_no_band_s_sentence_begins_with_a_name_for_it_may_stand_within_another(
    metric: Metric,
) -> None:
    first_words = {band.says.split()[0] for band in metric.bands}
    assert not {"Python", "PyTorch", "MXNet", "JAX"} & first_words


def test_an_answer_names_the_first_and_the_last_of_more_than_two_bands() -> None:
    low, middle, high = SHARE.bands
    four = replace(SHARE, bands=(low, middle, Band(0.4, "more", "More"), high))
    sentence = four.sentence(Interval(0.5, 0.3, 0.9), on())
    mentioned = [band.code for band in four.bands if band.says.lower() in sentence]
    assert mentioned == ["middle", "high"]


def test_without_a_queue_neighbouring_bands_that_need_one_are_one_answer() -> None:
    between = Interval(0.8, 0.7, 0.9)
    assert OVERLAP.place(between, on("sync")) == WITHOUT_QUEUE
    assert [band.code for band in OVERLAP.answers(between, on())] == ["partly", "hidden"]


MEANINGS: list[tuple[str, str, int, dict[float, str]]] = [
    ("parallel", "async", 4, {0.7: "hindered", 1.0: "serial", 1.97: "partly", 3.7: "parallel"}),
    ("overlap", "sync", 2, {0.05: "serial", 0.93: "without-queue", 0.5: "without-queue"}),
    (
        "independent-ops",
        "async",
        2,
        {0.67: "hindered", 1.02: "serial", 1.43: "partly", 1.92: "parallel"},
    ),
    ("independent-ops independence_speedup", "async", 2, {1.1: "in-order", 1.9: "parallel"}),
    (
        "independent-ops threads_speedup",
        "async",
        2,
        {0.5: "slower", 1.0: "unchanged", 1.9: "faster"},
    ),
    ("small-ops", "async", 2, {0.7: "hindered", 1.1: "no-help", 1.5: "partly", 1.9: "parallel"}),
    ("small-ops", "async", 4, {0.7: "hindered", 1.1: "no-help"}),
    ("small-ops", "async", 1, {1.0: "no-help"}),
    (
        "small-ops small_advantage_over_threads",
        "async",
        2,
        {0.5: "operators", 1.0: "neither", 2.0: "launches"},
    ),
    ("small-ops small_dispatch_fraction", "async", 2, {0.3: "computing", 0.9: "launching"}),
    ("three-way", "sync", 2, {0.32: "without-queue"}),
    ("dependencies bound_fraction", "async", 2, {0.5: "slower"}),
    ("dependencies random_bound_fraction", "async", 2, {0.9: "near"}),
    ("dependencies", "async", 2, {0.8: "cost", 1.0: "no-difference", 1.4: "paid"}),
    ("graph", "async", 3, {0.95: "near", 1.4: "beyond"}),
    ("eager-cpu torch_sync_dispatch_fraction", "async", 2, {0.99: "not-queued"}),
    ("eager-cpu torch_async_dispatch_fraction", "async", 2, {0.01: "queued"}),
    ("partitioning", "async", 2, {0.8: "slower", 1.0: "equal", 1.2: "faster"}),
    ("async", "sync", 2, {0.99: "not-queued"}),
    ("eager-cpu", "sync", 2, {0.99: "not-queued"}),
    ("barriers", "async", 2, {-0.05: "selective", 0.5: "partly"}),
    ("barriers", "sync", 2, {1.0: "not-selective"}),
    ("cost-model", "sync", 2, {0.005: "inside"}),
    ("cost-model", "async", 2, {0.25: "python", 2.95: "device"}),
    ("data-parallel test_accuracy", "async", 2, {0.1: "chance", 0.22: "learnt"}),
    ("batch-scaling", "async", 2, {0.9: "less", 1.1: "more"}),
    ("batch-scaling fixed_batch_scaling_efficiency", "async", 2, {0.3: "hindered", 0.5: "serial"}),
    (
        "batch-scaling fixed_batch_scaling_efficiency",
        "async",
        4,
        {0.15: "hindered", 0.25: "serial", 0.7: "partly"},
    ),
    (
        "batch-scaling scaled_batch_scaling_efficiency",
        "async",
        2,
        {0.7: "partly", 0.95: "parallel"},
    ),
    ("evaluate", "async", 2, {0.9: "slower", 1.5: "faster"}),
    ("evaluate unequal_images", "async", 2, {0: "equal", 1: "rounding"}),
    ("learning-rates", "async", 4, {0.5: "lower", 1: "same", 2: "partly"}),
    ("learning-rates", "async", 2, {2: "linear", 4: "more"}),
    ("learning-rates scaled_rate_gain", "async", 2, {-0.05: "worse", 0.05: "better"}),
]
"""The experiment with its metric, if that is not the main one; the engine; the number of devices;
and the band's code for each value of the metric.
"""


@pytest.mark.parametrize(("experiment_and_metric", "engine", "devices", "codes"), MEANINGS)
def test_what_an_experiment_s_figure_means(
    experiment_and_metric: str, engine: str, devices: int, codes: dict[float, str]
) -> None:
    experiment_name, _, metric_name = experiment_and_metric.partition(" ")
    experiment = EXPERIMENTS[experiment_name]
    metric = experiment.metric_named(metric_name or experiment.main.name)
    for value, code in codes.items():
        band = metric.place(Interval(value, value - 0.01, value + 0.01), on(engine, devices))
        assert band is not None
        assert band.code == code


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


def test_a_sentence_has_the_figure_its_bounds_and_what_is_possible() -> None:
    speedup = EXPERIMENTS["parallel"].metrics[0]
    assert speedup.sentence(Interval(1.97, 1.95, 1.99), on()) == (
        f"{speedup.bands[3].says}: 1.97 (1.95–1.99) of 2."
    )
    assert speedup.sentence(Interval(1.6, 0.8, 2.1), on()).startswith(CANNOT_TELL)
    once = Interval(0.25, -math.inf, math.inf)
    assert Metric("step_seconds").write(once, on()) == "250 ms"


def test_what_a_count_excludes_is_no_answer() -> None:
    metric = replace(SHARE, not_if_counted="low")
    touches_low_and_middle = Interval(0.2, 0.1, 0.3)
    counted = replace(on(), counts={"queued": Counted(1, 1, "a test", (1,))})
    assert [band.code for band in metric.answers(touches_low_and_middle, on())] == ["low", "middle"]
    assert [band.code for band in metric.answers(touches_low_and_middle, counted)] == ["middle"]


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
