"""A prediction asks, runs in a process of its own, and shows guess and result side by side."""

import os
import subprocess
from dataclasses import FrozenInstanceError
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest

import parallel_core
from parallel_core import RequestError
from parallel_core.experiments import EXPERIMENTS
from parallel_core.run.prediction import Prediction, Question, predict
from tests.conftest import Require, RunPython
from tests.parallel_core.run.asking import ended_with

SMALL: dict[str, Any] = {"backend": "numpy", "size": 16, "rounds": 3}


@pytest.fixture
def in_this_process(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a worker answer here, for what does not depend on where it runs."""

    def run(command: list[str], stdin: int, **_: object) -> "subprocess.CompletedProcess[str]":
        capfd.readouterr()
        status = ended_with(os.read(stdin, 1 << 16).decode().splitlines(), monkeypatch)
        return subprocess.CompletedProcess(command, status, *capfd.readouterr())

    starting = SimpleNamespace(run=run, TimeoutExpired=subprocess.TimeoutExpired)
    monkeypatch.setattr("parallel_core.measurement.fresh_process.subprocess", starting)


def predicted(name: str, guess: float | str, **options: Any) -> Prediction:
    """Guess a figure, and return the prediction."""
    prediction = predict(name, guess, **options)
    assert isinstance(prediction, Prediction)
    return prediction


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_says_what_its_figure_means(name: str) -> None:
    asked, main = predict(name), EXPERIMENTS[name].main
    assert isinstance(asked, Question)
    question, about, call = str(asked).split("\n")
    assert question.endswith("?")
    assert about == f"{main.name}: {main.means}."
    assert call == f'Your guess? predict("{name}", GUESS)'
    least, most = main.limits
    assert least < most


def test_another_metric_is_asked_for_by_its_name() -> None:
    asked = str(predict("dependencies", metric="bound_fraction"))
    assert asked.endswith('predict("dependencies", GUESS, metric="bound_fraction")')


def test_the_guess_is_held_against_a_run_in_a_process_of_its_own() -> None:
    prediction = predicted("parallel", 1.0, **SMALL)
    metric, result = EXPERIMENTS["parallel"].main, prediction.result
    assert result.backend["name"] == "numpy"
    assert result.parameters["size"] == 16
    assert prediction.timeline is None
    assert prediction.guess.found_in_words == metric.write(result.interval(metric.name), result)
    assert str(prediction).startswith(f"{prediction.guess.sentence}\n")
    shown = prediction._repr_html_()
    assert "<th>you guessed</th><th>measured</th>" in shown
    assert "<td><code>parallel_speedup</code> on numpy</td><td>1</td>" in shown
    with pytest.raises(FrozenInstanceError):
        prediction.guess = None  # type: ignore[misc, assignment]


@pytest.mark.usefixtures("in_this_process")
def test_a_count_is_guessed_by_words(require: Require) -> None:
    require("torch")
    chosen = {**SMALL, "backend": "torch", "device_kind": "cpu", "products": 4, "copies": 1}
    name = "book_copied_beside_computation"
    prediction = predicted("overlap", "0 of 4", metric=name, **chosen)
    counted = prediction.result.counts[name]
    assert (prediction.guess.name, prediction.guess.judgement != "open") == (name, True)
    assert prediction.guess.found_in_words == f"{counted.count} of {counted.of}"
    assert f"<code>{name}</code> on torch</td><td>0 of 4</td>" in prediction._repr_html_()


def test_a_list_of_values_is_written_as_the_command_takes_it() -> None:
    options = {"backend": "numpy", "rounds": 1, "budget": 1, "workers": None}
    prediction = predicted("small-ops", 1.0, sizes=(8, 16), **options)
    assert prediction.result.series["size"] == (8.0, 16.0)


@pytest.mark.usefixtures("in_this_process")
def test_the_profiler_sees_it_once_more_if_the_backend_has_one(
    require: Require,
) -> None:
    require("torch")
    # Where there is a GPU, torch would take that.
    chosen = {**SMALL, "backend": "torch", "device_kind": "cpu"}
    seen = predicted("parallel", 1.0, timeline=True, **chosen)
    assert seen.timeline is not None
    names = [case.name for case in seen.timeline.cases]
    assert names == ["on cpu:1 alone", "on cpu:2 alone", "on all together"]


@pytest.mark.usefixtures("in_this_process")
def test_the_backend_is_the_environment_s_and_without_a_profiler_there_is_no_timeline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PARALLEL_CORE_BACKEND", "numpy")
    unseen = predicted("parallel", 1.0, timeline=True, size=16, rounds=1)
    assert (unseen.result.backend["name"], unseen.timeline) == ("numpy", None)


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("overlapp", 1.0), {}, "unknown experiment 'overlapp'"),
        (("overlap", [1]), {}, r"a guess of overlap_efficiency is a number, and not \[1\]"),
        (
            ("parallel", "1/1"),
            {"metric": "parallel_speedup"},
            "unknown count of parallel 'parallel_speedup'",
        ),
        (("parallel", 1.0), {**SMALL, "metric": "speed"}, "unknown metric of parallel 'speed'"),
        (("parallel", 1.0), {**SMALL, "backend": "jaxx"}, "jaxx"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_predicted_is_refused_in_one_line(
    arguments: tuple[Any, Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(RequestError, match=message) as raised:
        predict(*arguments, **options)
    assert "\n" not in str(raised.value)


@pytest.mark.skipif(find_spec("IPython") is None, reason="no IPython is installed")
def test_it_is_public_and_a_notebook_shows_it_with_a_picture(run_python: RunPython) -> None:
    assert parallel_core.predict is predict
    code = """
from IPython.testing.globalipapp import start_ipython
shell = start_ipython()
from parallel_core import predict
prediction = predict("parallel", 1.0, backend="numpy", size=16, rounds=1)
assert shell.display_formatter.format(prediction) == ({}, {})
data, _ = shell.display_formatter.format(predict("parallel"))
assert data["text/plain"].startswith("Do two devices"), data
"""
    shown = run_python(code).stdout
    assert "You guessed 1; measured " in shown
    assert "IPython.core.display.SVG object" in shown
