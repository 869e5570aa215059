"""What others took of the cores widens a figure's interval so that the figure of a quiet machine lies in it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.asynchronous_computation.barriers import SAME, added_fraction, depths, named
from parallel_core.experiments.asynchronous_computation.cost_model import SMALLEST
from parallel_core.experiments.asynchronous_computation.increments import CostModel
from parallel_core.experiments.runner.metrics import Metric, ratio
from parallel_core.measurement.confidence_intervals import Interval
from parallel_core.measurement.result import Case
from parallel_core.measurement.verdicts import times_as_long
from parallel_core.system.machine import MachineWatch
from tests.parallel_core.experiments.runner.test_metrics import on

QUIET = MachineWatch(10.0, 2.0, 0.0, 0.0, 0.0, None, None)
PARALLEL, OVERLAP, DISPATCH = (EXPERIMENTS[name].metrics[0] for name in ("parallel", "overlap", "eager-cpu"))
DISPATCHED = "10 products"


def timed(name: str, seconds: float, taken: float, parts: tuple[str, ...] = (), sent: float = 0.5) -> Case:
    """Return a case whose three rounds took equally long, while others held a share of the cores."""
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
    st.lists(SECONDS, min_size=2, max_size=2), SHARES, st.floats(0.06, 0.6), st.lists(SHARES, min_size=3, max_size=3)
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
        without = [timed(name, seconds, 0.0, parts if name == whole else ()) for name, seconds in quiet]
        shares = dict(zip((*parts, whole), (*of_parts, of_all), strict=True))
        loaded = [timed(one.name, one.median / (1 - taken * shares[one.name]), taken, one.parts) for one in without]
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
    found, bare = measured(metric, slow, fast), measured(metric, *(replace(one, watch=None) for one in (slow, fast)))
    assert (found.low, found.high) == pytest.approx((bare.low * 0.5, bare.high / 0.8))
    assert times_as_long(slow, fast).low == pytest.approx(found.low)


def test_barriers_answer_although_others_hold_half_of_the_cores() -> None:
    deepest, taken = 64, 0.46
    cases = [timed(named("wait", count, SAME), 0.00357, taken) for count in depths(deepest)]
    cases += [timed(named("waitall", count, SAME), 0.00357 + 0.0021 * count, taken) for count in depths(deepest)]
    metric = replace(EXPERIMENTS["barriers"].metrics[0], formula=added_fraction(SAME, deepest))
    assert code_of(metric, measured(metric, *cases)) == "selective"


def test_the_slower_side_of_an_operation_is_clear_at_a_factor_of_twelve() -> None:
    model = CostModel(timed("t1", 224e-6, 0.46), timed("t2", 18.7e-6, 0.46), 0.0)
    assert code_of(SMALLEST, model.t2_over_t1) == "python"
