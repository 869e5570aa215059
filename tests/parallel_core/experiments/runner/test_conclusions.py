"""What is wrong, or cannot be true, invalidates a result; what other work leaves open has no
verdict.
"""

import json
import math
from dataclasses import replace

import pytest

from parallel_core.experiments.runner.changes import LESS_NOISE, Change, with_queue
from parallel_core.experiments.runner.conclusions import conclude
from parallel_core.experiments.runner.counts import Count
from parallel_core.experiments.runner.metrics import LOWEST, Band, Metric
from parallel_core.experiments.runner.tallies import unfinished_at_return
from parallel_core.measurement.confidence_intervals import Interval
from parallel_core.measurement.result import Answer, Case, Counted, Result
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


def read_again(result: Result) -> Result:
    return Result.from_json(json.loads(json.dumps(result.as_json(), allow_nan=False)))


def test_a_result_has_its_metrics_bands_and_an_answer_and_is_read_again() -> None:
    result = pretended(
        trial(PART, WHOLE), HALF, Metric("plain", lambda times: times["whole"]), changes=(ALWAYS,)
    )
    assert result.metrics == {"half": 0.5, "plain": 2.0}
    assert result.bands == {"half": "half"}
    assert result.metric_intervals.keys() == {"half", "plain"}
    assert result.answer is not None
    assert (len(result.answer.sentences), result.answer.would_change) == (1, "Anything would.")
    assert result.explanation == result.answer.sentences[0]
    read = read_again(result)
    assert (read.bands, read.metric_intervals, read.answer) == (
        result.bands,
        result.metric_intervals,
        result.answer,
    )
    assert read.parameters == {"rounds": 3, "budget": 600.0}
    before = {**result.as_json(), "schema": 1}
    del before["bands"]
    assert Result.from_json(before).bands == {}
    with pytest.raises(ValueError, match="schema 3"):
        Result.from_json({**before, "schema": 3})


def test_a_metric_whose_cases_are_missing_is_missing_and_one_of_a_single_round_is_open() -> None:
    assert pretended(trial(PART), HALF).metrics == {}
    once = pretended(trial(case("part", 1.0), case("whole", 2.0), rounds=1), HALF)
    assert (once.metrics, once.metric_intervals, once.bands) == ({"half": 0.5}, {}, {"half": None})


def test_wrong_values_and_other_problems_invalidate_and_no_machine_excuses_them() -> None:
    def with_error(error: float, whole: Case = WHOLE) -> Result:
        wrong = trial(PART, whole)
        wrong.errors["sums"] = error
        return pretended(wrong, HALF)

    found = with_error(2e-4)
    assert "sums differ from NumPy's by 2.0e-04" in found.problems[0]
    assert found.checks["max_relative_error"] == 2e-4
    assert not found.is_merely_disturbed
    assert found.explanation.startswith("No answer")
    assert len(with_error(math.nan).problems) == 1
    both = with_error(2e-4, TOO_FAST)
    assert (len(both.problems), len(both.disturbances), both.is_merely_disturbed) == (2, 1, False)
    assert both.answer == found.answer


def test_a_whole_that_is_faster_than_its_part_is_a_disturbance() -> None:
    found = pretended(trial(PART, TOO_FAST), HALF)
    assert found.is_merely_disturbed
    assert found.explanation.startswith("No verdict")
    assert read_again(found).disturbances == found.problems


def test_more_than_is_possible_is_noted_within_the_noise_and_invalid_beyond() -> None:
    def limited(speedup: float) -> Result:
        given = trial(PART)
        given.found("speedup", Interval(speedup, 0.95 * speedup, 1.05 * speedup))
        return pretended(
            given, Metric("speedup", at_most=lambda result: len(result.backend["devices"]))
        )

    within, beyond = limited(2.06), limited(2.6)
    assert (len(within.notes), within.problems) == (1, ())
    assert (beyond.notes, len(beyond.problems)) == ((), 1)
    assert beyond.problems == beyond.disturbances
    assert limited(1.9).notes == ()


@pytest.mark.parametrize(("share", "judged"), [(0.0, True), (0.1, True), (0.5, False)])
def test_there_is_no_verdict_if_others_took_so_much_that_every_figure_is_open(
    share: float, judged: bool
) -> None:
    watch = MachineWatch(10.0, 2.0, share, 0.0, None, None, None)
    timed = [replace(one, watch=watch) for one in (PART, WHOLE)]
    noted = trial(*timed)
    noted.notes.append("Noted.")
    found = pretended(noted, HALF)
    assert found.explanation.startswith("No verdict") != judged
    assert found.notes == (("Noted.",) if judged else ())
    assert found.has_verdict == judged
    assert (found.problems, found.machine_watch) == ((), watch)
    # What is decided is said on a busy machine, too.
    decided = replace(
        HALF, name="decided", bands=(Band(LOWEST, "some", "Some"), Band(2.0, "more", "More"))
    )
    both = pretended(trial(*timed), HALF, decided)
    assert both.has_verdict
    assert both.bands == {"half": "half" if judged else None, "decided": "some"}
    assert both.answer and len(both.answer.sentences) == 2  # noqa: PT018
    read = read_again(found)
    assert read.machine_watch == watch == read.cases[0].watch


def test_what_lies_between_two_answers_is_a_verdict_on_a_busy_machine_too() -> None:
    watch = MachineWatch(10.0, 2.0, 0.5, 0.0, None, None, None)
    rule = Change(lambda found: found.is_in("figure", "less", "half"), "Both.")

    def found(*interval: float) -> Result:
        made = trial(replace(PART, watch=watch))
        made.found("figure", Interval(*interval))
        figure = replace(HALF, name="figure", formula=None)
        return pretended(made, figure, changes=(rule, LESS_NOISE))

    between, open_to_none = found(0.4, 0.3, 0.5), found(0.8, 0.5, 1.1)
    assert (between.has_verdict, between.bands) == (True, {"figure": None})
    assert between.answer == Answer(("Less, or half: 0.40 (0.30–0.50).",), "Both.")
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


@pytest.mark.parametrize("whole", [WHOLE, TOO_FAST])
def test_a_count_answers_first_and_alone_where_the_clock_says_nothing(whole: Case) -> None:
    busy = MachineWatch(10.0, 2.0, 0.5, 0.0, None, None, None)
    counted = {"order": Counted(9, 10, "torch's profiler", (9, 10))}

    def answered(*cases: Case) -> Result:
        made = trial(*cases)
        made.counts = counted
        return conclude("any", made, (HALF,), (ALWAYS,), counts=(ORDER,))

    quiet = answered(PART, WHOLE)
    assert quiet.bands == {"order": "some", "half": "half"}
    assert quiet.answer is not None
    assert [sentence[:12] for sentence in quiet.answer.sentences] == [
        "Yes: 9 of 10",
        "By the clock",
    ]
    disturbed = answered(*(replace(one, watch=busy) for one in (PART, whole)))
    assert disturbed.answer is not None
    assert [sentence[:12] for sentence in disturbed.answer.sentences] == [
        "Yes: 9 of 10",
        "By the clock",
    ]
    assert read_again(disturbed).counts == counted


def test_counts_that_mean_the_same_share_a_sentence() -> None:
    counts = [replace(ORDER, name=name, counted=name) for name in ("first", "second", "third")]
    made = trial(PART, WHOLE)
    made.counts = {
        name: Counted(seen, 10, "torch's profiler", (seen,))
        for name, seen in {"first": 9, "second": 0, "third": 8}.items()
    }
    answer = conclude("any", made, (HALF,), (ALWAYS,), counts=counts).answer
    assert answer is not None
    assert answer.sentences[:2] == ("Yes: 9 of 10 first; 8 of 10 third.", "No: 0 of 10 second.")


def test_too_few_rounds_are_told() -> None:
    def noted(rounds: int, wanted: int, budget: float = 2.0) -> int:
        timed = Case("any", (1.0,) * rounds, (1.0,) * rounds)
        return len(pretended(trial(timed, rounds=wanted, budget=budget)).notes)

    assert (noted(1, 5), noted(3, 5), noted(1, 1), noted(1, 5, math.inf)) == (1, 0, 0, 0)


def test_the_first_rule_that_applies_says_what_would_change_it() -> None:
    rules = (LESS_NOISE, with_queue("it should"), ALWAYS)
    # NumPy is the backend, which has no engine with a queue.
    for part, option in ((PART, "--backend torch"), (case("part", 1.0, 1.4, 0.6), "--rounds")):
        answer = pretended(trial(part, WHOLE), HALF, changes=rules).answer
        assert isinstance(answer, Answer)
        assert option in answer.would_change
        assert pretended(trial(part, WHOLE), HALF).answer == replace(answer, would_change="")


def test_curves_are_series_over_all_their_points() -> None:
    made = trial(PART)
    made.points = {"one": {1.0: 0.1, 4.0: 0.4}, "other": {4.0: 0.8}}
    curves = Curves(over="size", quantity="seconds", x_title="", y_title="")
    series = pretended(made, curves=curves).series
    assert series["size"] == (1.0, 4.0)
    assert series["seconds one"] == (0.1, 0.4)
    assert math.isnan(series["seconds other"][0])
    assert series["seconds other"][1] == 0.8
