"""Every experiment runs on every backend and engine, is checked against NumPy, and comes out as one JSON object."""

import json
import math
import re
from collections.abc import Callable
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

import backends
from backends import Backend
from parallel_core import RequestError
from parallel_core.command_line.run import run
from parallel_core.experiments import EXPERIMENTS, copying, works
from parallel_core.experiments.asynchronous_computation import barriers
from parallel_core.experiments.automatic_parallelism import dependencies, small_ops
from parallel_core.experiments.runner.trial import Trial
from parallel_core.measurement.progress import listening
from parallel_core.measurement.result import Result
from tests.docs.metrics import unexplained
from tests.parallel_core.experiments.small import small

pytestmark = pytest.mark.usefixtures("in_process")

SIDE = "parallel_core.experiments.asynchronous_computation.increments.SIDE"
# Those of the first two chapters, which train nothing.
ON_A_BUDGET = [name for name, experiment in EXPERIMENTS.items() if "training_on" not in experiment.program.__module__]
MEASURING_A_SINGLE_DEVICE = {"async", "barriers", "cost-model", "eager-cpu", "independent-ops", "small-ops"}
MEASURING_A_SINGLE_DEVICE |= {"dependencies", "data-parallel", "evaluate"}
LONGEST = 220
"""Characters of an answer's sentence, without the bounds of its figures."""
BOUNDS = re.compile(r" \(−?[\d.,]+(?:–| … )−?[\d.,]+%?\)")


def check_answer(result: Result) -> None:
    """Assert that a result has an answer of two or three short sentences with figures, or says why it has none."""
    assert result.answer is not None
    sentences, change = result.answer.sentences, result.answer.would_change
    command = run.get_command(click.Context(run), result.experiment)
    assert command is not None
    options = {option for parameter in command.params for option in parameter.opts}
    assert set(re.findall(r"--[a-z][a-z-]*", " ".join((*sentences, change)))) <= options
    if result.problems or result.explanation.startswith("No verdict: "):
        assert [sentence.startswith(("No verdict: ", "No answer: ")) for sentence in sentences] == [True]
        return
    assert sentences[0] == result.explanation
    assert 1 <= len(sentences) <= 3
    assert all(re.search(r"\d", sentence) for sentence in sentences if not sentence.startswith("No answer: "))
    for sentence in (*sentences, change):
        assert sentence.endswith(".")
        assert len(BOUNDS.sub("", sentence)) <= LONGEST, sentence


@pytest.fixture(autouse=True)
def _soon_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """Multiply twice instead of often."""
    monkeypatch.setattr(small_ops, "TARGET_SECONDS", 0.0)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_result_is_checked_and_described(
    load_any: Callable[[int], Backend], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Queues of arrays of 1 MiB: the frameworks keep the memory that they free, and workers would grow.
    monkeypatch.setattr(SIDE, 512)
    backend = load_any(3)
    found = EXPERIMENTS[name].run(backend, **small(name))
    check_answer(found)
    result = json.loads(json.dumps(found.as_json(), allow_nan=False))
    assert (result["schema"], result["experiment"]) == (2, name)
    assert result["bands"].keys() <= result["metrics"].keys()
    same = {"name": backend.name, "engine": backend.engine, "devices": ["cpu:1", "cpu:2", "cpu:3"]}
    assert (same | {"threads_per_device": 1}).items() <= result["backend"].items()
    assert result["checks"]["max_relative_error"] < 1e-4
    assert not [problem for problem in result["problems"] if "differ" in problem]
    assert all(math.isfinite(value) for value in result["metrics"].values())
    assert unexplained(result) == set()
    # One number of workers is compared with nothing.
    assert (EXPERIMENTS[name].main.name in result["metrics"]) == (name != "independent-ops")
    for case in result["cases"]:
        assert len(case["seconds"]) == len(case["dispatch_seconds"]) == 2
        assert all(0 <= sent <= done for sent, done in zip(case["dispatch_seconds"], case["seconds"], strict=True))
        assert name not in ON_A_BUDGET or len(case["bare_seconds"]) in (0, 2)
    assert name not in ON_A_BUDGET or any(case["bare_seconds"] for case in result["cases"])
    assert result["environment"]["cores"] >= 1
    assert result["explanation"]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_single_device_is_measured_or_refused(
    load: Callable[[int], Backend], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # How much memory a queue holds is tested with `async`, on larger arrays.
    monkeypatch.setattr(SIDE, 64)
    if name in MEASURING_A_SINGLE_DEVICE:
        found = EXPERIMENTS[name].run(load(1), **small(name))
        assert found.checks["max_relative_error"] < 1e-4
        check_answer(found)
        return
    message = rf"^the experiment '{name}' .* at least 2 devices \(--devices 2\)$"
    with pytest.raises(RequestError, match=r"^the graph .* \(--devices 3\)$" if name == "graph" else message):
        EXPERIMENTS[name].run(load(1), **small(name))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("parallel", {}),
        ("overlap", {}),
        ("independent-ops", {"workers_compared": (1,)}),
        ("three-way", {}),
        ("barriers", {"deepest": 1}),
        ("dependencies", {}),
    ],
)
def test_sizes_are_chosen_when_none_is_given(
    backend: Backend, name: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    times = {works: ("RUN_SECONDS",), copying: ("COPYING_SECONDS",), barriers: ("TARGET_SECONDS",)}
    for module, names in (times | {dependencies: ("MULTIPLICATION_SECONDS",)}).items():
        for one in names:
            monkeypatch.setattr(module, one, 1e-3)
    parameters = EXPERIMENTS[name].run(backend, **options, rounds=1, budget=600.0).parameters
    assert parameters["size"] % 8 == 0
    assert all(parameters[one] > 0 for one in EXPERIMENTS[name].calibrated)


@pytest.mark.parametrize("name", ON_A_BUDGET)
def test_the_least_of_budgets_allows_a_round_of_the_size_that_is_given(backend: Backend, name: str) -> None:
    options = {**small(name), "rounds": 5, "budget": 1e-6}
    told: list[tuple[str, float]] = []
    with listening(lambda what, share: told.append((what, share))):
        result = EXPERIMENTS[name].run(backend, **options)
    assert min(len(case.seconds) for case in result.cases) == 1
    assert any(note.startswith("The budget of 1e-06 s allowed 1 of 5 ") for note in result.notes)
    sizes = {word: value for word, value in options.items() if word in ("size", "steps", "copies", "deepest", "batch")}
    assert sizes.items() <= result.parameters.items()
    assert result.parameters["budget"] == 1e-6
    assert {case.name for case in result.cases} & {what for what, _ in told}
    assert all(0 <= share <= 1 for _, share in told)


@given(st.floats(1e-7, 1.0), st.integers(1, 1000))
def test_a_size_is_what_is_wanted_or_what_a_product_s_seconds_allow(seconds: float, wanted: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        # Five products of the size that is probed take a thousandth of a second each.
        patched.setattr(works, "measure", lambda *_: (0.005, 0.005))
        size = works.size_up_to(Trial(backends.load("numpy", 1), {}), seconds, wanted).value
    of_one = 0.001 / works.PROBED_SIZE**3
    assert size <= max(wanted, 8)
    assert size == wanted or (size % 8 == 0 and (size == 8 or size**3 * of_one <= seconds < wanted**3 * of_one))
