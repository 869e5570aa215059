"""What is wrong, or cannot be true, invalidates a result; what other work leaves open has no
verdict.

A guess is compared with a figure's interval: it is judged, or left open, and told in words.
"""

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parallel_core import RequestError
from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.runner.changes import LESS_NOISE, Change, with_queue
from parallel_core.experiments.runner.conclusions import conclude
from parallel_core.experiments.runner.counts import Count
from parallel_core.experiments.runner.guess import Guess, check_guess, judge, read_guess
from parallel_core.experiments.runner.metrics import LOWEST, Band, Metric
from parallel_core.experiments.runner.tallies import Tally, unfinished_at_return
from parallel_core.measurement.confidence_intervals import Interval
from parallel_core.measurement.result import Answer, Case, Counted, Result
from parallel_core.measurement.sweep import Curves
from parallel_core.system.machine import MachineWatch
from tests.parallel_core.experiments.runner.pretended import case, pretended, trial
from tests.parallel_core.report.plots.synthetic_results import TIMED

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


ANY = (-math.inf, math.inf)
NUMBERS = st.floats(-1e6, 1e6)
POSITIVE = st.floats(1e-6, 1e6)
SPEEDUP = EXPERIMENTS["parallel"].metrics[0]


def measured(low: float, high: float, name: str = "speedup", **changed: Any) -> Result:
    """Return a result with one figure in the middle of its bounds."""
    middle = replace(TIMED, metrics={name: (low + high) / 2}, metric_intervals={name: (low, high)})
    return replace(middle, **changed)


def metric(name: str = "speedup", limits: tuple[float, float] = ANY) -> Metric:
    return Metric(name, limits=limits)


def judged(guess: float, low: float, high: float, name: str = "speedup", **changed: Any) -> Guess:
    return judge(guess, metric(name), measured(low, high, name, **changed))


@pytest.mark.parametrize(
    ("of", "guess", "low", "high", "judgement"),
    [
        (SPEEDUP, 1.9, 1.95, 1.99, "too low"),
        (SPEEDUP, 1.0, 1.95, 1.99, "too low"),
        (SPEEDUP, 1.0, 0.95, 1.05, "within"),
        (SPEEDUP, 2.0, 0.95, 1.05, "too high"),
        # The interval decides, and not the bands that it touches.
        (SPEEDUP, 1.0, 1.1, 1.3, "too low"),
        (SPEEDUP, 1.7, 1.5, 1.9, "within"),
        (metric(), 2.0, 1.0, 3.0, "within"),
        # Nothing else is possible.
        (metric("share", (-1.0, 1.0)), 0.5, -7.0, 13.0, "open"),
        (metric("share", (-1.0, 1.0)), 0.5, -0.9, 13.0, "within"),
        (SPEEDUP, 1.7, 0.0, 2.5, "open"),
        (SPEEDUP, 1.7, 0.0, 1.9, "within"),
    ],
)
def test_a_guess_of_a_figure_is_judged_by_the_interval(
    of: Metric, guess: float, low: float, high: float, judgement: str
) -> None:
    assert judge(guess, of, measured(low, high, of.name)).judgement == judgement


@given(NUMBERS, NUMBERS, NUMBERS, POSITIVE)
def test_the_interval_decides_in_both_directions(
    one: float, other: float, guess: float, distance: float
) -> None:
    low, high = sorted((one, other))
    there, back = judged(guess, low, high).judgement, judged(-guess, -high, -low).judgement
    assert back == {"too low": "too high", "too high": "too low"}.get(there, there)
    assert (there == "within") == (low <= guess <= high)
    # Far outside it is judged however wide the interval is.
    far = 1e-2 * max(1.0, abs(low) + high - low) + distance
    assert [judged(at, low, high).judgement for at in (low - far, high + far)] == [
        "too low",
        "too high",
    ]


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"metric_intervals": {}}, "one run does not say how well this is known"),
        ({"problems": ("sums differ",)}, "sums differ"),
        ({"metrics": {"speedup": math.nan}}, "did not find this figure"),
    ],
)
def test_nothing_is_said_without_an_interval_or_of_an_invalid_result(
    changed: dict[str, Any], why: str
) -> None:
    guess = judged(5.0, 1.0, 1.2, **changed)
    assert guess.judgement == "open"
    assert why in guess.sentence


def test_a_guess_outside_the_interval_says_whether_it_means_the_same() -> None:
    result = measured(1.95, 1.99, SPEEDUP.name)
    low, same_band, high_same_band = (judge(at, SPEEDUP, result) for at in (1.0, 1.9, 2.0))
    assert low.reason == "your guess is too low"
    assert same_band.reason == "your guess is too low, but means the same"
    assert high_same_band.reason == "your guess is too high, but means the same"


BESIDE = EXPERIMENTS["parallel"].counts[0]


def counted(seen: int, of: int, **changed: Any) -> Result:
    """Return a result with a count."""
    counts = {BESIDE.name: Counted(seen, of, "a test", (seen,))}
    return replace(TIMED, **{"counts": counts, "problems": (), **changed})


@pytest.mark.parametrize(
    ("guess", "seen", "of", "judgement"),
    [
        # It is right if it means the same, of however many things.
        (Tally(25, 25), 24, 25, "within"),
        (Tally(10, 10), 24, 25, "within"),
        (Tally(10, 10), 1, 25, "too high"),
        (Tally(0, 10), 1, 25, "within"),
        (Tally(0, 10), 10, 25, "too low"),
        (Tally(5, 10), 24, 25, "too low"),
    ],
)
def test_a_guess_of_a_count_is_judged_by_its_share(
    guess: Tally, seen: int, of: int, judgement: str
) -> None:
    assert judge(guess, BESIDE, counted(seen, of)).judgement == judgement
    # Times that cannot be true leave order as it is.
    impossible = {"problems": ("too fast",), "disturbances": ("too fast",)}
    assert judge(guess, BESIDE, counted(seen, of, **impossible)).judgement == judgement


def test_a_guess_of_a_count_is_told_with_it_and_open_only_of_nothing_or_of_wrong_values() -> None:
    guess = judge(Tally(10, 10), BESIDE, counted(24, 25))
    assert guess.sentence == "You guessed 10 of 10; counted 24 of 25: your guess is right."
    assert guess.as_json() == {
        "count": BESIDE.name,
        "value": 10,
        "of": 10,
        "judgement": "within",
        "reason": "your guess is right",
    }
    for result in (counted(24, 25, counts={}), counted(24, 25, problems=("values differ",))):
        assert judge(Tally(10, 10), BESIDE, result).judgement == "open"


@pytest.mark.parametrize(
    ("text", "guess"),
    [("10/10", Tally(10, 10)), (" 9 of 10 ", Tally(9, 10)), ("0.5", 0.5), ("-1e3", -1000.0)],
)
def test_a_guess_is_read_as_a_number_or_a_count(text: str, guess: float | Tally) -> None:
    assert read_guess(text) == guess


@pytest.mark.parametrize("text", ["", "much", "1/2/3", "10 of", "1.5/2", "-1/2"])
def test_what_is_no_guess_gets_one_line(text: str) -> None:
    with pytest.raises(RequestError, match=r"^a guess is a number, or a count such as 10/10, "):
        read_guess(text)


def test_the_sentence_has_guess_and_interval_in_the_figure_s_unit_on_a_busy_machine_too() -> None:
    assert (
        judged(0.5, 0.9, 0.96).sentence
        == "You guessed 0.5; measured 0.93 (0.90–0.96): your guess is too low."
    )
    slow = judged(1e-6, 2e-4, 4e-4, "sum_seconds")
    assert (
        slow.sentence
        == "You guessed 1.00 μs; measured 300 μs (200 μs … 400 μs): your guess is too low."
    )
    as_json = {
        "metric": "sum_seconds",
        "value": 1e-6,
        "judgement": "too low",
        "reason": "your guess is too low",
    }
    assert slow.as_json() == as_json
    busy = MachineWatch(10.0, 2.0, 0.9, 0.0, 0.0, None, None)
    assert judged(5.0, 1.0, 1.2, machine_watch=busy).judgement == "too high"
    for guess, reason in ((6, "right"), (5, "too low")):
        sentence = judged(guess, 6.0, 6.0, "layer_waits", machine_watch=busy).sentence
        assert sentence == f"You guessed {guess}; measured 6: your guess is {reason}."


@pytest.mark.parametrize("value", ["0.5", None, True, math.nan, math.inf, [1], 1j])
def test_a_guess_that_is_no_number_gets_one_line(value: object) -> None:
    with pytest.raises(RequestError, match=r"^a guess of speedup is a number, and not "):
        check_guess(value, metric())


def test_an_impossible_guess_and_an_unknown_metric_get_one_line_that_says_what_is_possible() -> (
    None
):
    with pytest.raises(
        RequestError, match=r"^share cannot be 1\.4: guess a number between 0 and 1$"
    ):
        check_guess(1.4, metric("share", (0.0, 1.0)))
    with pytest.raises(RequestError, match=r"^speedup cannot be -2: guess a number of at least 0$"):
        check_guess(-2, metric(limits=(0.0, math.inf)))
    assert check_guess(1, metric("share", (0.0, 1.0))) == 1.0
    with pytest.raises(RequestError, match=r"^unknown metric of .+ 'share' \(known: speedup\)$"):
        judge(1.0, metric("share"), measured(1.0, 1.2))
