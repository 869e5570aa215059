"""What changed between recordings: each planted change is named first, in both directions, and two
recordings of one program are seldom called different.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from parallel_core.traces.account import Parts
from parallel_core.traces.figures import as_json
from parallel_core.traces.profile.changes import Changes, changes_between
from parallel_core.traces.profile.recorded_steps import (
    Operation,
    OperationOfStep,
    RecordedSteps,
    Time,
    read_recording,
)
from parallel_core.traces.profile.requirements import EARLY
from parallel_core.traces.trace_files import pack_trace
from tests.parallel_core.traces.profile.made_up_recordings import STEPS, Training

Recordings = Callable[..., Sequence[RecordedSteps]]
USUAL = Training()
LATE = replace(USUAL, is_late=True)
MORE_COMPUTING = replace(USUAL, computing=1.15)
HALF_THE_BYTES = replace(LATE, exchanging=0.5)
WAITING = replace(USUAL, waiting=6000.0)
BEFORE, AFTER = (0, 1, 2), (3, 4, 5)
"""The seeds of the recordings."""
COMPUTE, EXCHANGE, IDLE = "compute_seconds", "exposed_exchange_seconds", "idle_seconds"
DRAWS = 200


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Recordings:
    """Record a training as often as there are seeds."""
    folder = tmp_path_factory.mktemp("recordings")

    @cache
    def record(training: Training, seed: int) -> RecordedSteps:
        return read_recording(training.record(folder / "trace.json", seed))

    return lambda training, seeds: [record(training, seed) for seed in seeds]


def largest_part(changes: Changes) -> str:
    """Return the name of the part that changed most."""
    return max(changes.parts, key=lambda part: abs(part.difference.estimate)).name


@pytest.mark.parametrize(
    ("less", "more", "part", "in_words"),
    [
        (USUAL, MORE_COMPUTING, COMPUTE, "computing"),
        (USUAL, LATE, EXCHANGE, "exchange that nothing hides"),
        (HALF_THE_BYTES, LATE, EXCHANGE, "exchange that nothing hides"),
        (USUAL, WAITING, IDLE, "waiting"),
    ],
    ids=["computing", "late", "bytes", "waiting"],
)
def test_a_planted_change_is_named_first_in_both_directions(
    less: Training, more: Training, part: str, in_words: str, recordings: Recordings
) -> None:
    for before, after, verdict, direction in (
        (less, more, "slower", "more"),
        (more, less, "faster", "less"),
    ):
        changes = changes_between(recordings(before, BEFORE), recordings(after, AFTER))
        assert changes.verdict == verdict
        assert largest_part(changes) == part
        whole, _, parts = changes.sentence.partition(", of which ")
        assert whole.startswith("A step takes ")
        first_part = parts.split(" ", 2)[2]
        assert first_part.startswith(f"{direction} {in_words}")
        assert parts.endswith("(3 recordings each).")


def test_parts_sum_to_the_change_of_the_step(recordings: Recordings) -> None:
    changes = changes_between(recordings(USUAL, BEFORE), recordings(LATE, AFTER))
    assert changes.step is not None
    of_parts = sum(part.difference.estimate for part in changes.parts)
    assert of_parts == pytest.approx(changes.step.difference.estimate)
    assert changes.step.difference.estimate == pytest.approx(
        changes.step.after - changes.step.before
    )


def test_exchanges_and_reasons_are_counted(recordings: Recordings) -> None:
    changes = changes_between(recordings(LATE, BEFORE), recordings(USUAL, AFTER))
    (early,) = changes.counted
    assert (early.name, early.kind, early.before, early.after) == (EARLY, "exchange", 0, 3)
    unknown = [replace(recording, early_exchanges=None) for recording in recordings(LATE, BEFORE)]
    assert changes_between(unknown, recordings(USUAL, AFTER)).counted == ()
    assert changes.before.hidden_exchange_share == pytest.approx(0, abs=0.05)
    assert changes.after.hidden_exchange_share == pytest.approx(0.75, abs=0.05)
    assert [row.code for row in changes.gone] == ["launched-after"]
    assert [row.code for row in changes.come] == ["nothing-left"]


def test_what_all_recordings_do_more_often_is_counted(recordings: Recordings) -> None:
    before, after = recordings(USUAL, BEFORE), recordings(USUAL, AFTER)
    linear = Operation("linear", "compute")

    def with_numbers(*numbers: float) -> list[RecordedSteps]:
        counted = []
        for recording, number in zip(after, numbers, strict=True):
            done = recording.operations[linear]._replace(number=number)
            counted.append(replace(recording, operations={**recording.operations, linear: done}))
        return counted

    assert changes_between(before, with_numbers(5, 4, 5)).counted == ()
    assert changes_between(before, with_numbers(4.4, 4.4, 4.4)).counted == ()
    for numbers, number_after in (((5, 6, 5), 5), ((3, 3, 2), 3)):
        (change,) = changes_between(before, with_numbers(*numbers)).counted
        assert (change.name, change.before, change.after) == ("linear", 4, number_after)


def test_the_operations_that_changed_are_named(recordings: Recordings) -> None:
    changes = changes_between(recordings(LATE, BEFORE), recordings(HALF_THE_BYTES, AFTER))
    (operation,) = changes.operations
    assert operation.time.name == "all_reduce"
    assert (operation.kind, operation.number_before, operation.number_after) == ("exchange", 4, 4)
    assert operation.time.difference.estimate == pytest.approx(-4 * 1.5e-3, rel=0.1)


def test_another_model_is_refused(recordings: Recordings) -> None:
    deeper = replace(USUAL, layers=8)
    for before, after, sentence in (
        (USUAL, deeper, "AFTER computes 8 operators a step that BEFORE lacks"),
        (deeper, USUAL, "BEFORE computes 8 operators a step that AFTER lacks"),
    ):
        changes = changes_between(recordings(before, BEFORE), recordings(after, AFTER))
        assert changes.verdict == "not comparable"
        assert changes.sentence.startswith(f"They cannot be compared: {sentence} (addmm backward")
        assert changes.slower_by_more_than(5) is None
        assert changes.cannot_answer[0].code == "other-operators"


def test_what_is_unmatched_and_little_is_said(recordings: Recordings) -> None:
    changes = changes_between(
        recordings(USUAL, BEFORE), recordings(replace(USUAL, layers=5), AFTER)
    )
    assert changes.verdict == "slower"
    assert changes.unmatched.side == "AFTER"
    assert changes.unmatched.operators == 2
    assert changes.unmatched.share == pytest.approx(6 / 31, rel=0.05)


def test_what_cannot_be_compared_is_said(recordings: Recordings) -> None:
    (usual,) = recordings(USUAL, BEFORE[:1])
    for other, code in (
        (replace(usual, steps=()), "no-steps"),
        (replace(usual, steps=usual.steps[:1]), "single-step"),
        (replace(usual, processes=2), "other-processes"),
    ):
        for before, after in ((usual, other), (other, usual)):
            changes = changes_between([before], [after])
            assert changes.sentence.startswith("They cannot be compared: ")
            assert changes.cannot_answer[0].code == code
            assert as_json(changes)["ratio"] is None


def test_one_recording_a_side_decides_what_runs_of_one_program_do_not_differ_by(
    recordings: Recordings,
) -> None:
    slightly_slower = replace(USUAL, computing=1.08)
    one_each = recordings(USUAL, BEFORE[:1]), recordings(slightly_slower, AFTER[:1])
    changes = changes_between(*one_each)
    assert changes.verdict == "too few runs"
    assert changes.cannot_answer[0].code == "too-few-recordings"
    assert changes.slower_by_more_than(5) is None
    twice_as_long = replace(USUAL, waiting=30000.0)
    clearly = changes_between(recordings(USUAL, BEFORE[:1]), recordings(twice_as_long, AFTER[:1]))
    assert clearly.verdict == "slower"
    assert "(one recording each)" in clearly.sentence
    assert clearly.slower_by_more_than(10) is True
    assert clearly.slower_by_more_than(300) is False


def test_what_other_work_took_of_one_side_is_allowed_for(recordings: Recordings) -> None:
    loaded = [
        replace(recording, core_wait_share=0.4) for recording in recordings(MORE_COMPUTING, AFTER)
    ]
    quiet_before = recordings(USUAL, BEFORE)
    changes = changes_between(quiet_before, loaded)
    assert changes.verdict == "no difference shown"
    assert changes.slower_by_more_than(5) is None
    assert not any(part.is_certain for part in changes.parts)
    assert changes.operations == ()
    loaded_before = [replace(recording, core_wait_share=0.4) for recording in quiet_before]
    assert changes_between(loaded_before, loaded).verdict == "slower"


def test_a_recording_states_how_long_it_waited_for_a_core(tmp_path: Path) -> None:
    plain, packed = tmp_path / "plain.json", tmp_path / "packed.json.gz"
    pack_trace(USUAL.record(plain, 0), packed, STEPS - 1, 0.25)
    recording = read_recording(packed)
    assert recording.core_wait_share == 0.25
    assert len(recording.steps) == STEPS - 1
    assert read_recording(plain).core_wait_share == 0


def drawn(generator: np.random.Generator, loudness: float) -> RecordedSteps:
    """Draw a recording of a program, on which a load weighs all the time, and in each step anew."""
    deviation = 0.02 * loudness
    load = generator.normal(0, deviation)
    steps = []
    for _ in range(10):
        computing, waiting = 0.03 * np.exp(load + generator.normal(0, deviation, 2)) * (0.8, 0.2)
        parts = (computing, 0.0, 0.0, waiting, 0.0, 0.0, 0.0, 0.0)
        steps.append(Parts(computing + waiting, *parts))
    done = OperationOfStep(1, Time(steps[0].compute_seconds, 0.0))
    return RecordedSteps(1, steps, {Operation("mm", "compute"): done})


@pytest.mark.parametrize("count", [1, 2, 3])
def test_recordings_of_one_program_are_seldom_called_different(count: int) -> None:
    generator = np.random.default_rng(count)
    called = 0
    for loudness in (0.3, 1, 3, 10):
        for _ in range(DRAWS // 4):
            before, after = ([drawn(generator, loudness) for _ in range(count)] for _ in range(2))
            called += as_json(changes_between(before, after))["verdict"] in ("faster", "slower")
    assert called <= 0.05 * DRAWS


def test_where_no_difference_is_shown_a_part_may_have_changed() -> None:
    generator = np.random.default_rng(0)
    before = [drawn(generator, 1) for _ in range(3)]
    after = [
        replace(
            recording,
            steps=[
                replace(step, compute_seconds=step.seconds, idle_seconds=0.0)
                for step in recording.steps
            ],
        )
        for recording in (drawn(generator, 1) for _ in range(3))
    ]
    changes = changes_between(before, after)
    assert changes.verdict == "no difference shown"
    assert "No difference is shown: less than " in changes.sentence
    assert "less waiting" in changes.sentence.partition(", though ")[2]


def test_a_median_step_has_the_operations_that_the_program_does(tmp_path: Path) -> None:
    recording = read_recording(USUAL.record(tmp_path / "trace.json", 0, noise=0))
    number_of = {operation.name: done.number for operation, done in recording.operations.items()}
    assert number_of["linear"] == number_of["addmm backward"] == number_of["all_reduce"] == 4
    linear = recording.operations[Operation("linear", "compute")]
    assert linear.time.seconds == pytest.approx(4 * 1995e-6)
    assert len(recording.steps) == STEPS
    assert recording.time_of("seconds").deviation == pytest.approx(0, abs=1e-4)
