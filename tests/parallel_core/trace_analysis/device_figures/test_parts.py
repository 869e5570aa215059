"""What a time consists of, and how intervals of a step's shares grow with the noise and with the load."""

from dataclasses import replace

import pytest

from backends.profiling import Window
from parallel_core.trace_analysis.device_figures.parts import PARTS, Parts, account_of, over_steps, share_of
from parallel_core.trace_analysis.device_figures.steps import steps
from tests.backends.profiling.events import ns
from tests.parallel_core.trace_analysis.synthetic import SECOND, made_case, queue_of

STEP = Parts(1.0, 0.7, 0.1, 0.0, 0.2, 0.3, 0.2, 0.0, 0.0)


def test_steps_of_devices_that_are_behind_the_host_follow_each_other() -> None:
    spans = [
        *(span._replace(launched=ns(0)) for span in queue_of([(1, 3), (3, 5)])),
        *(span._replace(launched=ns(1)) for span in queue_of([(5, 9)])),
        *(span._replace(launched=ns(1)) for span in queue_of([(5, 7), (9, 10)], "exchange", SECOND)),
    ]
    marked = tuple(Window(f"ProfilerStep#{n}", ns(n), ns(n + 1)) for n in range(2))
    found = steps(replace(made_case(*spans), annotations=marked))
    assert found is not None
    assert [one.seconds for one in found.steps] == [1, 1]
    assert [one.parts.seconds for one in found.steps] == [5, 5]
    first, second = (one.parts for one in found.steps)
    assert [getattr(first, part) for part in PARTS] == [4, 0, 0, 1]
    assert [getattr(second, part) for part in PARTS] == [4, 1, 0, 0]
    assert (second.exchange_seconds, second.hidden_exchange_share) == (3, pytest.approx(2 / 3))


def test_without_links_devices_that_are_far_behind_leave_no_account_of_a_step() -> None:
    marked = tuple(Window(f"ProfilerStep#{n}", ns(n), ns(n + 1)) for n in range(2))
    case = replace(made_case(*queue_of([(0, 1), (2, 3), (5, 20)])), annotations=marked)
    found = steps(case)
    assert found is not None
    assert found.account is None


def test_intervals_hold_the_share_and_grow_with_what_others_took() -> None:
    account, loaded = account_of([STEP] * 5), account_of([STEP] * 5, taken=0.3)
    assert account.seconds == 1
    for part in PARTS:
        quiet, wide = account.shares[part], loaded.shares[part]
        assert quiet.estimate == wide.estimate == getattr(STEP, part)
        assert wide.low <= quiet.low <= quiet.estimate <= quiet.high <= wide.high
    # All that others took may have been taken of one part.
    assert loaded.shares["compute_seconds"].low <= 0.4 / 0.7
    assert loaded.shares["compute_seconds"].high == 1
    assert loaded.seconds_interval is not None
    assert loaded.seconds_interval.low < 0.7


def test_of_a_single_step_no_interval_is_known() -> None:
    account = account_of([STEP])
    assert account.seconds_interval is None
    assert {(share.low, share.high) for share in account.shares.values()} == {(0, 1)}
    assert over_steps(share_of("idle_seconds"), [STEP]).estimate == 0.2
