"""What is timed in turn is a case of once, and what is wrong or cannot be makes a result invalid."""

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import backends
from parallel_core.experiments import measuring
from parallel_core.experiments.measuring import Units, largest_error, result_of, time_in_turn, with_parts
from parallel_core.measurement.answer import Answer
from parallel_core.measurement.confidence_intervals import Interval
from parallel_core.measurement.result import Case, Result
from parallel_core.measurement.timing import countdown
from parallel_core.system.machine_watch import MachineWatch


def test_times_are_of_one_repetition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "measure", lambda backend, work: (30.0, 60.0))
    cases = time_in_turn(backends.load("numpy", 1), {"six": list, "one": list}, rounds=2, repeats={"six": 6})
    assert (cases["six"].dispatch_seconds, cases["six"].seconds, cases["six"].repeats) == ((5.0, 5.0), (10.0, 10.0), 6)
    assert (cases["one"].seconds, cases["one"].repeats) == ((60.0, 60.0), 1)


def test_the_bare_time_is_that_of_the_longest_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "measure", lambda backend, work: (0.0, work()))
    units = Units({"first": lambda: 6.0, "second": lambda: 12.0}, {"both": ("first", "second"), "one": ("first",)})
    work = {"both": lambda: 30.0, "one": lambda: 20.0, "none": lambda: 10.0}
    cases = time_in_turn(backends.load("numpy", 1), work, rounds=2, repeats={"both": 6}, units=units)
    assert {name: case.bare_seconds for name, case in cases.items()} == {"both": (2, 2), "one": (6, 6), "none": ()}


def test_a_budget_that_is_spent_ends_the_rounds_after_the_first() -> None:
    backend, x = backends.load("numpy", 1), np.ones(2)
    work = {"sum": lambda: backend.launch(np.add, x, x)}
    assert len(time_in_turn(backend, work, rounds=9, budget=-1.0)["sum"].seconds) == 1
    assert len(time_in_turn(backend, work, rounds=9, budget=60.0)["sum"].seconds) == 9
    left = countdown(100.0)
    assert 40 < left(0.5) <= 50 < left(0.9) <= 90


def test_too_few_rounds_are_told_and_weaken_the_verdict() -> None:
    few, enough = Case("any", (1.0,), (1.0,)), Case("any", (1.0, 1.0, 1.0), (1.0,))
    weak = result(few, parameters={"rounds": 5, "budget": 2.0})
    assert weak.explanation == "Too few rounds for a verdict. It was pretended."
    assert weak.notes[0].startswith("The budget of 2 s allowed 1 of 5 rounds: ")
    for fine in (
        result(enough, parameters={"rounds": 5, "budget": 2.0}),
        result(few, parameters={"rounds": 1, "budget": 2.0}),
        result(few, parameters={"rounds": 5}),
    ):
        assert (fine.explanation, fine.notes) == ("It was pretended.", ())


def test_a_metric_beyond_its_limit_is_a_note_within_the_noise_and_invalid_beyond() -> None:
    def limited(speedup: float) -> Result:
        found = Interval(speedup, 0.95 * speedup, 1.05 * speedup)
        return result(metrics={"speedup": speedup}, intervals={"speedup": found}, limits={"speedup": 2.0})

    within, beyond = limited(2.06), limited(2.6)
    assert (len(within.notes), within.problems) == (1, ())
    assert within.metric_intervals == {"speedup": (0.95 * 2.06, 1.05 * 2.06)}
    assert Result.from_json(json.loads(json.dumps(within.as_json()))).metric_intervals == within.metric_intervals
    assert (beyond.notes, len(beyond.problems)) == ((), 1)
    assert beyond.problems == beyond.disturbances
    assert limited(1.9).notes == ()


def test_a_nan_behind_right_values_is_the_largest_error() -> None:
    right = np.eye(2)
    assert math.isnan(largest_error([right, np.full((2, 2), np.nan), right], [right] * 3))
    assert largest_error([np.ones(3)], [np.ones(2)]) == math.inf


def result(*cases: Case, **described: Any) -> Result:
    given = {"parameters": {}, "metrics": {}, "error": 0.0, "explanation": "It was pretended.", **described}
    return result_of("any", backends.load("numpy", 1), cases=cases, compared="products", **given)


def test_a_result_says_what_computed_and_how_fast_at_its_size() -> None:
    taken = result_of(
        "any",
        backends.load("numpy", 1),
        parameters={"size": 320},
        cases=(),
        metrics={},
        explanation="It was pretended.",
        error=0.0,
        compared="products",
    )
    read = Result.from_json(taken.as_json()).backend
    assert read["product"]["size"] == 320
    assert read["product"]["gflop_per_s"] > 0
    (library,) = read["kernels"]
    assert (library["library"], library["threads"]) == ("OpenBLAS", read["threads_per_device"])
    assert set(library) == {"library", "version", "instruction_set", "threads"}


def test_a_result_is_invalid_if_a_check_fails_or_a_whole_is_faster_than_its_part() -> None:
    part, slow, fast = (
        Case(name, (taken,) * 3, (taken,) * 3) for name, taken in (("part", 2.0), ("slow", 3.0), ("fast", 1.0))
    )
    assert result(part, with_parts(slow, [part])).problems == ()
    impossible = result(part, with_parts(fast, [part]), notes=("It was fast.",))
    assert "'fast' took 1 s, less than its part 'part' alone" in impossible.problems[0]
    assert impossible.explanation.startswith("No verdict: ")
    assert impossible.notes == ()
    assert result(error=2e-4).problems == ("products differ from NumPy's by 2.0e-04 of the largest element",)
    assert len(result(error=math.nan).problems) == 1


def test_a_wrong_number_is_never_excused_by_a_disturbed_machine() -> None:
    part, fast = (Case(name, (taken,) * 3, (taken,) * 3) for name, taken in (("part", 2.0), ("fast", 1.0)))
    disturbed, both = (result(part, with_parts(fast, [part]), error=error) for error in (0.0, 2e-4))
    assert disturbed.is_merely_disturbed
    assert not both.is_merely_disturbed
    assert both.problems[0].startswith("products differ")
    assert not result(part).is_merely_disturbed
    assert Result.from_json(json.loads(json.dumps(both.as_json()))).disturbances == disturbed.problems


@pytest.mark.parametrize(("share", "judged"), [(0.0, True), (0.1, True), (0.5, False)])
def test_what_is_said_of_times_is_withheld_if_others_took_the_cores(share: float, judged: bool) -> None:
    watch = MachineWatch(10.0, 2.0, share, 0.0, None, None, None)
    timed = replace(Case("any", (1.0,), (1.0,)), watch=watch)
    found = result(timed, timed, notes=("Noted.",))
    assert (found.explanation == "It was pretended.") == judged
    assert found.explanation.startswith("No verdict: other work") != judged
    assert found.notes == (("Noted.",) if judged else ())
    assert found.problems == ()
    assert found.machine_watch == watch
    assert result(timed, judges_times=False).explanation == "It was pretended."
    read = Result.from_json(json.loads(json.dumps(found.as_json())))
    assert read.machine_watch == watch == read.cases[0].watch


GIVEN = Answer(("It took 2 s.",), "More cores than 2.")


def test_the_explanation_is_the_first_sentence_of_the_answer_and_both_are_read_again() -> None:
    found = result(answer=GIVEN)
    assert found.answer == Answer(("It was pretended.", "It took 2 s."), "More cores than 2.")
    read = json.loads(json.dumps(found.as_json()))
    assert read["answer"] == {
        "sentences": ["It was pretended.", "It took 2 s."],
        "would_change": "More cores than 2.",
    }
    assert Result.from_json(read).answer == found.answer


def test_an_experiment_without_an_answer_and_a_result_of_before_there_were_answers_have_none() -> None:
    plain = result()
    assert plain.answer is None
    written = plain.as_json()
    assert written.pop("answer") is None
    assert Result.from_json(written).answer is None


def test_an_invalid_result_answers_only_that_it_is() -> None:
    wrong = result(error=2e-4, answer=GIVEN).answer
    assert wrong is not None
    (sentence,) = wrong.sentences
    assert sentence.startswith("No answer: the result is invalid, because products differ from NumPy's by 2.0e-04")
    # A disturbed machine excuses no wrong number.
    part, fast = (Case(name, (taken,) * 3, (taken,) * 3) for name, taken in (("part", 2.0), ("fast", 1.0)))
    assert result(part, with_parts(fast, [part]), error=2e-4, answer=GIVEN).answer == wrong


def test_an_answer_is_withheld_with_the_verdict() -> None:
    part, fast = (Case(name, (taken,) * 3, (taken,) * 3) for name, taken in (("part", 2.0), ("fast", 1.0)))
    busy = replace(part, watch=MachineWatch(10.0, 2.0, 0.5, 0.0, None, None, None))
    for found in (result(part, with_parts(fast, [part]), answer=GIVEN), result(busy, answer=GIVEN)):
        assert found.answer is not None
        (sentence,) = found.answer.sentences
        assert sentence.startswith("No verdict: ")
        assert f"{sentence} {found.answer.would_change}" == found.explanation
    unjudged = result(busy, answer=GIVEN, judges_times=False).answer
    assert unjudged is not None
    assert unjudged.sentences[1:] == GIVEN.sentences
