"""A metric follows from the times that its formula touches, and means what the band of its whole
interval says.

What others took of the cores widens the interval so that the figure of a quiet machine lies in it.
"""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.asynchronous_computation.barriers import (
    SAME,
    added_fraction,
    depths,
    named,
)
from parallel_core.experiments.asynchronous_computation.cost_model import SMALLEST
from parallel_core.experiments.asynchronous_computation.increments import CostModel
from parallel_core.experiments.runner.formulas import interval_of, ratio
from parallel_core.experiments.runner.metrics import LOWEST, WITHOUT_QUEUE, Band, Metric
from parallel_core.measurement.confidence_intervals import Interval
from parallel_core.measurement.result import Case, Result
from parallel_core.measurement.verdicts import times_as_long
from parallel_core.system.machine import MachineWatch
from tests.parallel_core.comparison.made_up import parallel, result
from tests.parallel_core.experiments.runner.pretended import case

HALF = Metric("half", lambda times: times["part"] / times["whole"])
CASES = {
    one.name: one
    for one in (case("part", 1.0, 1.1, 0.9), case("whole", 2.0, 2.2, 1.8), case("other", 9, 1, 5))
}


def on(engine: str = "async", devices: int = 2, **parameters: object) -> Result:
    found = result(parallel("torch", engine), {"any": 1.0})
    backend = {**found.backend, "devices": [f"cpu:{number}" for number in range(1, devices + 1)]}
    # With two cores for three parts a third can be saved.
    metrics = {**found.metrics, "possible_on_cores_fraction": 1 / 3}
    return replace(
        found,
        backend=backend,
        parameters={**found.parameters, "workers": "1,2", **parameters},
        metrics=metrics,
    )


def test_it_is_of_the_medians_with_an_interval_over_the_rounds_that_it_touches() -> None:
    found = HALF.measured(CASES)
    assert found is not None
    assert found.estimate == 0.5
    assert 0.4 < found.low < 0.5 < found.high < 0.6
    # Rounds are resampled whole: what is common to part and whole is no noise, and the other case
    # is not looked at.
    assert HALF.measured({**CASES, "other": case("other", 1e9)}) == found
    dispatched = interval_of(lambda times: times.dispatch("part") / times["part"], CASES)
    assert dispatched is not None
    assert dispatched.estimate == 0.5


def test_bands_ascend_from_the_lowest_and_each_has_a_code_and_a_sentence_of_its_own() -> None:
    for metric in (
        one for experiment in EXPERIMENTS.values() for one in experiment.metrics if one.bands
    ):
        starts = [band.start for band in metric.bands]
        assert starts[0] == LOWEST, metric.name
        assert starts == sorted(set(starts)), metric.name
        for texts in ([band.code for band in metric.bands], [band.says for band in metric.bands]):
            assert len(set(texts)) == len(texts), metric.name
        for says in (band.says for band in metric.bands):
            # Figures stand behind the sentence, and nowhere in it.
            assert says[0].isupper() and not says.endswith("."), says  # noqa: PT018
            assert not any(character.isdigit() for character in says), says


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
    ends = [metric.place(Interval(value, value, value), on()) for value in bounds]
    least, most = sorted((metric.share(low, on()), metric.share(high, on())))
    if ends[0] == ends[2]:
        assert answers == (ends[0],)
    elif least <= metric.no_effect <= most or {ends[0], ends[2]} == {
        metric.bands[0],
        metric.bands[-1],
    }:
        assert answers == ()
    else:
        assert {answers[0], answers[-1]} == {ends[0], ends[2]}
        assert ends[1] in answers
    assert metric.answers(Interval(estimate, -math.inf, math.inf), on()) == ()
    assert metric.answers(Interval(estimate, math.nan, math.nan), on()) == ()


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_two_neighbouring_answers_are_both_said_unless_no_effect_lies_between_them(
    name: str,
) -> None:
    for metric in (one for one in EXPERIMENTS[name].metrics if one.bands):
        # A share of itself, since only the bands matter.
        metric = replace(metric, share=lambda value, _: value)
        for lower, upper in pairwise(metric.bands):
            near = Interval(upper.start, upper.start - 0.01, upper.start + 0.01)
            sentence = metric.sentence(near, on()).lower()
            said = [band.says.lower() in sentence for band in (lower, upper)]
            is_open = len(metric.bands) == 2 or near.low <= metric.no_effect <= near.high
            assert said == ([False, False] if is_open else [True, True]), sentence
            assert sentence.startswith("inconclusive") == is_open
            # Neither can be taken for decided.
            assert metric.place(near, on()) is None
        # No name begins a sentence that stands within another one.
        starts = [band.says.split()[0] for band in metric.bands]
        assert not {"Python", "PyTorch", "MXNet", "JAX"} & set(starts)


def test_an_answer_names_the_first_and_the_last_of_more_than_two_bands() -> None:
    four = replace(SHARE, bands=(*SHARE.bands[:2], Band(0.4, "more", "More"), SHARE.bands[2]))
    sentence = four.sentence(Interval(0.5, 0.3, 0.9), on())
    assert [band.says.lower() in sentence for band in four.bands] == [False, True, False, True]


def test_without_a_queue_neighbouring_bands_that_need_one_are_one_answer() -> None:
    between = Interval(0.8, 0.7, 0.9)
    assert OVERLAP.place(between, on("sync")) == WITHOUT_QUEUE
    assert [band.code for band in OVERLAP.answers(between, on())] == ["partly", "hidden"]


MEANINGS = [
    ("parallel", "async", 2, {0.7: "hindered", 1.0: "serial", 1.65: "partly", 1.97: "parallel"}),
    ("parallel", "async", 4, {0.7: "hindered", 1.0: "serial", 1.97: "partly", 3.7: "parallel"}),
    ("parallel", "async", 8, {0.5: "hindered", 0.9: "serial"}),
    ("overlap", "async", 2, {-0.4: "hindered", 0.05: "serial", 0.5: "partly", 0.93: "hidden"}),
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
    ("three-way", "async", 2, {-0.2: "hindered", 0.02: "serial", 0.2: "partly", 0.32: "parallel"}),
    ("three-way", "sync", 2, {0.32: "without-queue"}),
    ("dependencies", "async", 2, {0.5: "slower"}),
    ("dependencies random_bound_fraction", "async", 2, {0.9: "near"}),
    ("dependencies speedup", "async", 2, {0.8: "cost", 1.0: "no-difference", 1.4: "paid"}),
    ("graph", "async", 3, {0.95: "near", 1.4: "beyond"}),
    ("batch-norm", "async", 2, {0.8: "faster", 1.0: "equal", 1.2: "slower"}),
    ("eager-cpu torch_sync_dispatch_fraction", "async", 2, {0.99: "not-queued"}),
    ("eager-cpu torch_async_dispatch_fraction", "async", 2, {0.01: "queued"}),
    ("partitioning", "async", 2, {0.8: "slower", 1.0: "equal", 1.2: "faster"}),
    ("batch-norm per_device_difference_fraction", "async", 2, {0.15: "different"}),
    ("async", "async", 2, {0.01: "queued", 0.5: "partly"}),
    ("async", "sync", 2, {0.99: "not-queued"}),
    ("async wait_fraction", "async", 2, {0.1: "selective", 1.0: "not-selective"}),
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


@pytest.mark.parametrize(("experiment", "engine", "devices", "codes"), MEANINGS)
def test_what_an_experiment_s_figure_means(
    experiment: str, engine: str, devices: int, codes: dict[float, str]
) -> None:
    name, _, figure = experiment.partition(" ")
    metric = EXPERIMENTS[name].metric_named(figure or EXPERIMENTS[name].main.name)
    for value, code in codes.items():
        band = metric.place(Interval(value, value - 0.01, value + 0.01), on(engine, devices))
        assert band is not None
        assert band.code == code


def test_a_sentence_has_the_figure_its_bounds_and_what_is_possible() -> None:
    speedup = EXPERIMENTS["parallel"].metrics[0]
    assert speedup.sentence(Interval(1.97, 1.95, 1.99), on()) == (
        f"{speedup.bands[3].says}: 1.97 (1.95–1.99) of 2."
    )
    assert "parallel_speedup" in speedup.sentence(Interval(1.6, 0.8, 2.1), on())


QUIET = MachineWatch(10.0, 2.0, 0.0, 0.0, 0.0, None, None)
PARALLEL, OVERLAP, DISPATCH = (
    EXPERIMENTS[name].metrics[0] for name in ("parallel", "overlap", "eager-cpu")
)
DISPATCHED = "10 products"


def timed(
    name: str, seconds: float, taken: float, parts: tuple[str, ...] = (), sent: float = 0.5
) -> Case:
    """Return a case whose three rounds took equally long, while others held a share of the
    cores.
    """
    watch = replace(QUIET, others_share=taken)
    return Case(name, (seconds,) * 3, (sent * seconds,) * 3, parts=parts, watch=watch)


def measured(metric: Metric, *cases: Case) -> Interval:
    found = metric.measured({case.name: case for case in cases})
    assert found is not None
    return found


def code_of(metric: Metric, interval: Interval) -> str:
    band = metric.place(interval, on())
    return band.code if band else ""


SECONDS, SHARES = st.floats(0.5, 2.0), st.floats(0.0, 1.0)


@given(
    st.lists(SECONDS, min_size=2, max_size=2),
    SHARES,
    st.floats(0.06, 0.6),
    st.lists(SHARES, min_size=3, max_size=3),
)
def test_the_figure_of_a_quiet_machine_is_in_it(
    alone: tuple[float, float], hidden: float, taken: float, lost: tuple[float, float, float]
) -> None:
    together = max(alone) + hidden * min(alone)
    *of_parts, of_all = sorted(lost)
    for metric, parts, whole in (
        (PARALLEL, ("on cpu:1 alone", "on cpu:2 alone"), "on all together"),
        (OVERLAP, ("run", "copy"), "run and copy together"),
    ):
        quiet = [*zip(parts, alone, strict=True), (whole, together)]
        without = [
            timed(name, seconds, 0.0, parts if name == whole else ()) for name, seconds in quiet
        ]
        shares = dict(zip((*parts, whole), (*of_parts, of_all), strict=True))
        loaded = [
            timed(one.name, one.median / (1 - taken * shares[one.name]), taken, one.parts)
            for one in without
        ]
        found, truth = measured(metric, *loaded), measured(metric, *without).estimate
        assert found.low <= truth <= found.high


def test_a_speed_up_does_not_fall_and_what_was_not_disturbed_is_not_widened() -> None:
    def speedup(taken: float) -> Interval:
        parts = ("on cpu:1 alone", "on cpu:2 alone")
        alone = [timed(name, 1.0, taken) for name in parts]
        return measured(PARALLEL, *alone, timed("on all together", 1.02, taken, parts))

    quiet, little, loaded = (speedup(taken) for taken in (0.0, 0.04, 0.3))
    assert little == quiet
    assert (loaded.estimate, loaded.low) == pytest.approx((quiet.estimate, quiet.low))
    assert loaded.high == pytest.approx(quiet.high + quiet.estimate * (1 / 0.7 - 1))
    assert code_of(PARALLEL, speedup(0.3)) == "parallel"


@pytest.mark.parametrize(("sent", "code"), [(0.004, "queued"), (0.999, "not-queued")])
def test_the_time_until_control_returned_is_a_part_of_all(sent: float, code: str) -> None:
    found = measured(DISPATCH, timed(DISPATCHED, 1.0, 0.5, sent=sent))
    assert code_of(DISPATCH, found) == code
    assert found.high <= 1.1


def test_a_ratio_is_as_wide_as_either_case_may_have_lost() -> None:
    slow, fast = timed("slow", 4.0, 0.5), timed("fast", 1.0, 0.2)
    metric = Metric("ratio", ratio("slow", "fast"), ratio=True)
    found, bare = (
        measured(metric, slow, fast),
        measured(metric, *(replace(one, watch=None) for one in (slow, fast))),
    )
    assert (found.low, found.high) == pytest.approx((bare.low * 0.5, bare.high / 0.8))
    assert times_as_long(slow, fast).low == pytest.approx(found.low)


def test_barriers_answer_although_others_hold_half_of_the_cores() -> None:
    deepest, taken = 64, 0.46
    cases = [timed(named("wait", count, SAME), 0.00357, taken) for count in depths(deepest)]
    cases += [
        timed(named("waitall", count, SAME), 0.00357 + 0.0021 * count, taken)
        for count in depths(deepest)
    ]
    metric = replace(EXPERIMENTS["barriers"].metrics[0], formula=added_fraction(SAME, deepest))
    assert code_of(metric, measured(metric, *cases)) == "selective"


def test_the_slower_side_of_an_operation_is_clear_at_a_factor_of_twelve() -> None:
    model = CostModel(timed("t1", 224e-6, 0.46), timed("t2", 18.7e-6, 0.46), 0.0)
    assert code_of(SMALLEST, model.t2_over_t1) == "python"
