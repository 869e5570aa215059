"""What is wrong, or cannot be true, invalidates a result; what other work leaves open has no
verdict.
"""

import json
import math
from dataclasses import replace

import pytest

from parallel_core.experiments.runner.changes import LESS_NOISE, Change, with_queue
from parallel_core.experiments.runner.conclusions import conclude, too_busy
from parallel_core.experiments.runner.counts import Count
from parallel_core.experiments.runner.metrics import LOWEST, Band, Metric
from parallel_core.experiments.runner.tallies import unfinished_at_return
from parallel_core.experiments.runner.trial import Trial
from parallel_core.measurement.checks import values_differ
from parallel_core.measurement.confidence_intervals import Interval
from parallel_core.measurement.result import RESULT_SCHEMA, Answer, Case, Counted, Note, Result
from parallel_core.measurement.sweep import Curves
from parallel_core.system.machine import MachineWatch
from tests.parallel_core.experiments.runner.pretended import case, pretended, trial

HALF = Metric(
    "half",
    lambda times: times["part"] / times["whole"],
    bands=(Band(LOWEST, "less", "Less"), Band(0.4, "half", "Half"), Band(0.6, "more", "More")),
)
PART, WHOLE = case("part", 1.0, 1.01, 0.99), case("whole", 2.0, 2.02, 1.98, parts=("part",))
TOO_FAST = case("whole", 0.5, 0.51, 0.49, parts=("part",))
ALWAYS = Change(lambda _: True, "Anything would.")
BUSY = MachineWatch(10.0, 2.0, 0.5, 0.0, None, None, None)
"""On a busy machine, of whose cores other programs held half."""


def read_again(result: Result) -> Result:
    """Return a result after it was written as JSON."""
    return Result.from_json(json.loads(json.dumps(result.as_json(), allow_nan=False)))


def answer_of(result: Result) -> Answer:
    """Return a result's answer, which it must have."""
    assert result.answer is not None
    return result.answer


def test_a_result_has_its_metrics_bands_and_an_answer_and_is_read_again() -> None:
    plain = Metric("plain", lambda times: times["whole"])
    result = pretended(trial(PART, WHOLE), HALF, plain, changes=(ALWAYS,))
    assert result.metrics == {"half": 0.5, "plain": 2.0}
    assert result.bands == {"half": "half"}
    assert result.metric_intervals.keys() == {"half", "plain"}
    assert result.answer == Answer((result.explanation,), "Anything would.")
    read = read_again(result)
    assert (read.bands, read.answer) == (result.bands, result.answer)
    assert read.metric_intervals == result.metric_intervals
    assert read.parameters == {"rounds": 3, "budget": 600.0}


def test_a_result_of_the_first_schema_has_no_bands_and_one_of_a_later_schema_is_refused() -> None:
    first_schema = {**pretended(trial(PART, WHOLE), HALF).as_json(), "schema": 1}
    del first_schema["bands"]
    # Problems were sentences without codes.
    first_schema["problems"] = ["It cannot be."]
    read = Result.from_json(first_schema)
    assert read.bands == {}
    assert read.problems == (Note(None, "It cannot be."),)
    later = RESULT_SCHEMA + 1
    with pytest.raises(ValueError, match=f"schema {later}"):
        Result.from_json({**first_schema, "schema": later})


def test_a_metric_whose_cases_are_missing_is_missing_and_one_of_a_single_round_is_open() -> None:
    assert pretended(trial(PART), HALF).metrics == {}
    single_round = trial(case("part", 1.0), case("whole", 2.0), rounds=1)
    result = pretended(single_round, HALF)
    assert result.metrics == {"half": 0.5}
    assert result.metric_intervals == {}
    assert result.bands == {"half": None}


def test_wrong_values_and_other_problems_invalidate_and_no_machine_excuses_them() -> None:
    def with_error(error: float, whole: Case = WHOLE) -> Result:
        wrong = trial(PART, whole)
        wrong.errors["sums"] = error
        return pretended(wrong, HALF)

    wrong = with_error(2e-4)
    assert wrong.problems == (values_differ("sums", 2e-4),)
    assert wrong.checks["max_relative_error"] == 2e-4
    assert len(with_error(math.nan).problems) == 1
    # A whole that is faster than its part is a disturbance.
    too_fast = pretended(trial(PART, TOO_FAST), HALF)
    assert too_fast.is_merely_disturbed
    assert [note.code for note in too_fast.problems] == ["faster-than-part"]
    assert read_again(too_fast).disturbances == too_fast.problems
    both = with_error(2e-4, TOO_FAST)
    assert both.problems == (*wrong.problems, *too_fast.problems)
    assert both.disturbances == too_fast.problems
    assert not both.is_merely_disturbed
    assert both.answer == wrong.answer != too_fast.answer


def test_more_than_is_possible_is_noted_within_the_noise_and_invalid_beyond() -> None:
    of_two_devices = Metric("speedup", at_most=lambda result: len(result.backend["devices"]))

    def with_speedup(speedup: float) -> Result:
        timed = trial(PART)
        timed.found("speedup", Interval(speedup, 0.95 * speedup, 1.05 * speedup))
        return pretended(timed, of_two_devices)

    within, beyond = with_speedup(2.06), with_speedup(2.6)
    assert [note.code for note in within.notes] == ["above-possible"]
    assert within.problems == beyond.notes == with_speedup(1.9).notes == ()
    assert [note.code for note in beyond.problems] == ["impossible-figure"]
    assert beyond.problems == beyond.disturbances


@pytest.mark.parametrize(("others_share", "has_verdict"), [(0.0, True), (0.1, True), (0.5, False)])
def test_there_is_no_verdict_if_others_took_so_much_that_every_figure_is_open(
    others_share: float, has_verdict: bool
) -> None:
    watch = replace(BUSY, others_share=others_share)
    noted = trial(replace(PART, watch=watch), replace(WHOLE, watch=watch))
    note = Note(None, "Noted.")
    noted.notes.append(note)

    result = pretended(noted, HALF)

    assert result.has_verdict == has_verdict
    assert result.disturbances == (() if has_verdict else (too_busy(0.5),))
    # A note would explain a figure that says nothing.
    assert result.notes == ((note,) if has_verdict else ())
    assert result.problems == ()
    assert result.machine_watch == watch
    read = read_again(result)
    assert read.machine_watch == watch
    assert read.cases[0].watch == watch


def test_a_figure_that_is_decided_is_a_verdict_although_another_one_is_open() -> None:
    watch = replace(BUSY, others_share=0.5)
    timed = trial(replace(PART, watch=watch), replace(WHOLE, watch=watch))
    # However wide its interval is, the figure of a half lies below 2.
    below_two = (Band(LOWEST, "below", "Below"), Band(2.0, "above", "Above"))
    decided = replace(HALF, name="decided", bands=below_two)

    result = pretended(timed, HALF, decided)

    assert result.has_verdict
    assert result.bands == {"half": None, "decided": "below"}
    assert len(answer_of(result).sentences) == 2


def test_what_lies_between_two_answers_is_a_verdict_on_a_busy_machine_too() -> None:
    figure = replace(HALF, name="figure", formula=None)
    less_or_half = Change(lambda result: result.is_in("figure", "less", "half"), "Both.")

    def with_figure(interval: Interval) -> Result:
        timed = trial(replace(PART, watch=BUSY))
        timed.found("figure", interval)
        return pretended(timed, figure, changes=(less_or_half, LESS_NOISE))

    between = with_figure(Interval(0.4, 0.3, 0.5))
    assert between.has_verdict
    assert between.bands == {"figure": None}
    assert between.answer == Answer(
        ("Less, or half: 0.40 (0.30–0.50); this run cannot tell which.",), "Both."
    )
    open_to_none = with_figure(Interval(0.8, 0.5, 1.1))
    assert not open_to_none.has_verdict
    assert open_to_none.bands == {"figure": None}


ORDER = Count(
    "order",
    "parts came first",
    case="whole",
    tally=unfinished_at_return,
    metric="half",
    bands=(Band(LOWEST, "none", "No"), Band(0.5, "some", "Yes")),
)


@pytest.mark.parametrize("whole", [WHOLE, TOO_FAST], ids=["disturbed", "too-fast"])
def test_a_count_answers_before_the_clock_on_a_quiet_and_on_a_busy_machine(whole: Case) -> None:
    counts = {"order": Counted(9, 10, "torch's profiler", (9, 10))}

    def answered(*cases: Case) -> Result:
        timed = trial(*cases)
        timed.counts = counts
        return conclude("any", timed, (HALF,), (ALWAYS,), counts=(ORDER,))

    quiet = answered(PART, WHOLE)
    assert quiet.bands == {"order": "some", "half": "half"}
    busy = answered(replace(PART, watch=BUSY), replace(whole, watch=BUSY))
    assert read_again(busy).counts == counts
    for result in (quiet, busy):
        by_count, by_clock = answer_of(result).sentences
        assert by_count.startswith("Yes: 9 of 10")
        assert by_clock.startswith("By the clock")


def test_counts_that_mean_the_same_share_a_sentence() -> None:
    seen_of_ten = {"first": 9, "second": 0, "third": 8}
    timed = trial(PART, WHOLE)
    timed.counts = {
        name: Counted(seen, 10, "torch's profiler", (seen,)) for name, seen in seen_of_ten.items()
    }
    counts = [replace(ORDER, name=name, counted=name) for name in seen_of_ten]
    answer = answer_of(conclude("any", timed, (HALF,), (ALWAYS,), counts=counts))
    assert answer.sentences[:2] == ("Yes: 9 of 10 first; 8 of 10 third.", "No: 0 of 10 second.")


GAIN = Metric(
    "gain",
    lambda times: times["part"] / times["whole"],
    bands=(Band(LOWEST, "slower", "It was slower"), Band(0.3, "faster", "It was faster")),
)
AT_ONCE = replace(
    ORDER,
    name="at_once",
    at_once=True,
    metric="gain",
    bands=(Band(LOWEST, "in-turn", "No"), Band(0.5, "together", "Yes")),
)


SLOW = case("whole", 20.0, 20.0, 20.0)


def seen_at_once(seen: int, cores: float, running: float | None, whole: Case) -> Trial:
    """Return a trial on these cores, in which so many of ten operations ran beside others."""
    timed = trial(PART, whole)
    timed.counts = {"at_once": Counted(seen, 10, "a test", (seen,), running=running)}
    timed.described["environment"] = {"usable_cores": cores}
    return timed


@pytest.mark.parametrize(
    ("seen", "cores", "running", "whole", "code"),
    [
        (0, 2, None, WHOLE, "in-turn"),
        (9, 2, 1.0, WHOLE, "together"),
        (9, 2, 0.79, WHOLE, "waited-inside"),
        (9, 1.5, 1.0, WHOLE, "one-core"),
        # What is not known of threads, the clock decides.
        (9, 2, None, WHOLE, "together"),
        (9, 2, None, SLOW, "in-progress"),
    ],
)
def test_work_at_the_same_time_is_said_only_if_it_was_seen(
    seen: int, cores: float, running: float | None, whole: Case, code: str
) -> None:
    timed = seen_at_once(seen, cores, running, whole)
    result = conclude("any", timed, (GAIN,), (ALWAYS,), counts=(AT_ONCE,))
    assert result.bands["at_once"] == code
    # What was stored says the same.
    assert AT_ONCE.band_of(read_again(result)).code == code


@pytest.mark.parametrize(
    ("seen", "whole", "faster", "is_valid"),
    [
        (0, WHOLE, False, False),
        (9, WHOLE, False, True),
        # Two threads of one core work at the same time, and gain nothing.
        (9, SLOW, False, True),
        (9, SLOW, True, False),
    ],
)
def test_a_count_that_the_clock_contradicts_is_no_answer(
    seen: int, whole: Case, faster: bool, is_valid: bool
) -> None:
    timed = seen_at_once(seen, 2.0, 1.0, whole)
    timed.faster_if_recorded = {"at_once"} if faster else set()
    # Without a queue nothing is contradicted.
    timed.backend.engine = "async"  # type: ignore[misc]
    result = conclude("any", timed, (GAIN,), (ALWAYS,), counts=(AT_ONCE,))
    assert [note.code for note in result.problems] == ([] if is_valid else ["recorded-otherwise"])


@pytest.mark.parametrize(
    ("rounds", "wanted", "budget", "notes"),
    [(1, 5, 2.0, 1), (3, 5, 2.0, 0), (1, 1, 2.0, 0), (1, 5, math.inf, 0)],
)
def test_too_few_rounds_are_told(rounds: int, wanted: int, budget: float, notes: int) -> None:
    timed = trial(case("any", *[1.0] * rounds), rounds=wanted, budget=budget)
    assert len(pretended(timed).notes) == notes


def test_the_first_rule_that_applies_says_what_would_change_it() -> None:
    noisy_part = case("part", 1.0, 1.4, 0.6)
    # NumPy is the backend, which has no engine with a queue.
    for part, option in ((PART, "--backend torch"), (noisy_part, "--rounds")):
        rules = (LESS_NOISE, with_queue("it should"), ALWAYS)
        answer = answer_of(pretended(trial(part, WHOLE), HALF, changes=rules))
        without_rules = answer_of(pretended(trial(part, WHOLE), HALF))
        assert option in answer.would_change
        assert without_rules == replace(answer, would_change="")


def test_curves_are_series_over_all_their_points() -> None:
    timed = trial(PART)
    timed.points = {"star": {1.0: 0.1, 4.0: 0.4}, "ring": {4.0: 0.8}}
    curves = Curves(over="size", quantity="seconds", x_title="", y_title="")
    series = pretended(timed, curves=curves).series
    assert series["size"] == (1.0, 4.0)
    assert series["seconds star"] == (0.1, 0.4)
    ring_at_1, ring_at_4 = series["seconds ring"]
    assert math.isnan(ring_at_1)
    assert ring_at_4 == 0.8
