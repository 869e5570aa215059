"""Every experiment runs on every backend and engine, is checked against NumPy, and comes out as one
JSON object.

What it cannot do is refused, and a verb or an operator that is wrong makes its result invalid.
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import backends
from backends import Backend
from backends.arrays import tree_map
from backends.numpy import ops
from parallel_core import RequestError, Result
from parallel_core.experiments import EXPERIMENTS, copying, probing, workloads
from parallel_core.experiments.asynchronous_computation import barriers, cost_model, increments
from parallel_core.experiments.automatic_parallelism import dependencies, small_ops
from parallel_core.experiments.runner.conclusions import few_rounds
from parallel_core.experiments.runner.trial import Trial
from parallel_core.experiments.training_on_multiple_gpus.allreduce import sums
from parallel_core.measurement.progress import listening
from parallel_core.measurement.result import RESULT_SCHEMA
from tests.docs.metrics import unexplained
from tests.parallel_core.experiments.small import small
from tests.parallel_core.experiments.test_catalogue import command_of, options_of

pytestmark = pytest.mark.usefixtures("in_process")

# Those of the first two chapters, which train nothing.
ON_A_BUDGET = [
    name
    for name, experiment in EXPERIMENTS.items()
    if "training_on" not in experiment.program.__module__
]
MEASURING_A_SINGLE_DEVICE = {
    "async",
    "barriers",
    "cost-model",
    "data-parallel",
    "dependencies",
    "eager-cpu",
    "evaluate",
    "independent-ops",
    "small-ops",
}


def check_answer(result: Result) -> None:
    """Assert that a result has an answer of a few sentences with figures, and that options which
    the answer names exist.
    """
    assert result.answer is not None
    sentences, would_change = result.answer.sentences, result.answer.would_change
    named_options = re.findall(r"--[a-z][a-z-]*", " ".join((*sentences, would_change)))
    assert set(named_options) <= options_of(command_of(EXPERIMENTS[result.experiment]))
    if result.has_verdict:
        assert sentences[0] == result.explanation
        # The first one may answer the question, before the counts and the clock do.
        meanings_of_counts = {result.bands[name] for name in result.counts}
        assert len(sentences) <= 4 + len(meanings_of_counts)
        assert all(re.search(r"\d|^No answer: ", sentence) for sentence in sentences)


def check_counts(result: Result) -> None:
    """Assert that what an experiment counts was counted by the framework's profiler, and is 0
    without queues; or was counted by the program.
    """
    framework, engine = result.backend["name"], result.backend["engine"]
    has_profiler = framework != "numpy"
    declared = EXPERIMENTS[result.experiment].counts
    expected = [count for count in declared if has_profiler or count.tally is None]
    recorded = [count for count in expected if count.name in result.counts]
    assert list(result.counts) == [count.name for count in recorded]
    for count in recorded:
        counted = result.counts[count.name]
        assert 0 <= counted.count <= counted.of
        assert counted.count in counted.repetitions
        by_order = count.band(counted.count, counted.of)
        assert count.at_once or result.bands[count.name] == by_order.code
        assert result.bands[count.name] == count.band_of(result).code
        if count.tally is not None:
            assert framework in counted.witness
            assert counted.count == 0 or engine != "sync"
    # Some counts need an option, but not the first. What the program counts may need another
    # process. JAX's profile does not tell which way copies go, nor which operations a task has.
    if expected and framework != "jax":
        assert expected[0] in recorded or expected[0].tally is None
    assert Result.from_json(result.as_json()).counts == result.counts


@pytest.fixture(autouse=True)
def _soon_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """Multiply twice instead of often, and add up less."""
    monkeypatch.setattr(small_ops, "TARGET_SECONDS", 0.0)
    monkeypatch.setattr(increments, "RECORDED_INCREMENTS", 100)
    monkeypatch.setattr(cost_model, "enough_steps", lambda *_: 20)
    monkeypatch.setattr(sums, "COUNTED_BYTES", 2**16)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_result_is_checked_and_described(load_any: Callable[[int], Backend], name: str) -> None:
    backend = load_any(3)
    experiment = EXPERIMENTS[name]
    result = experiment.run(backend, **small(name))
    check_answer(result)
    check_counts(result)
    assert result.checks["max_relative_error"] < 1e-4
    codes = {problem.code for problem in result.problems}
    assert not codes & {"values-differ", "devices-differ", "counts-differ"}
    # Where a single number of workers is given, workers are compared with nothing.
    assert (experiment.main.name in result.metrics) == (name != "independent-ops")
    for case in result.cases:
        assert len(case.seconds) == 2
        # Control returned before the end.
        for dispatched, done in zip(case.dispatch_seconds, case.seconds, strict=True):
            assert 0 <= dispatched <= done
    if name in ON_A_BUDGET:
        assert {len(case.bare_seconds) for case in result.cases} in ({2}, {0, 2})

    document = json.loads(json.dumps(result.as_json(), allow_nan=False))
    assert document["schema"] == RESULT_SCHEMA
    assert document["experiment"] == name
    assert document["bands"].keys() <= document["metrics"].keys() | document["counts"].keys()
    assert all(math.isfinite(value) for value in document["metrics"].values())
    assert document["environment"]["cores"] >= 1
    for field in ("name", "engine", "threads_per_device"):
        assert document["backend"][field] == getattr(backend, field)
    assert document["backend"]["devices"] == ["cpu:1", "cpu:2", "cpu:3"]
    assert unexplained(document) == set()


@pytest.mark.parametrize(
    "name", [name for name in EXPERIMENTS if name in MEASURING_A_SINGLE_DEVICE]
)
def test_a_single_device_is_measured(load: Callable[[int], Backend], name: str) -> None:
    result = EXPERIMENTS[name].run(load(1), **small(name))
    assert result.checks["max_relative_error"] < 1e-4
    check_answer(result)


@pytest.mark.parametrize("name", sorted(EXPERIMENTS.keys() - MEASURING_A_SINGLE_DEVICE))
def test_a_single_device_is_refused(load: Callable[[int], Backend], name: str) -> None:
    message = rf"^the experiment '{name}' .* at least 2 devices \(--devices 2\)$"
    if name == "graph":
        message = r"^the graph .* \(--devices 3\)$"
    with pytest.raises(RequestError, match=message):
        EXPERIMENTS[name].run(load(1), **small(name))


@pytest.mark.parametrize(
    "name", ["parallel", "overlap", "independent-ops", "three-way", "barriers", "dependencies"]
)
def test_sizes_are_chosen_when_none_is_given(
    backend: Backend, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workloads, "RUN_SECONDS", 1e-3)
    monkeypatch.setattr(copying, "COPYING_SECONDS", 1e-3)
    monkeypatch.setattr(barriers, "TARGET_SECONDS", 1e-3)
    monkeypatch.setattr(dependencies, "MULTIPLICATION_SECONDS", 1e-3)
    experiment = EXPERIMENTS[name]
    options = {**small(name), "rounds": 1}
    for calibrated in experiment.calibrated:
        options.pop(calibrated, None)
    parameters = experiment.run(backend, **options).parameters
    assert parameters["size"] % 8 == 0
    assert all(parameters[calibrated] > 0 for calibrated in experiment.calibrated)


@pytest.mark.parametrize("name", ON_A_BUDGET)
def test_the_least_of_budgets_allows_a_round_of_the_size_that_is_given(
    backend: Backend, name: str
) -> None:
    options = {**small(name), "rounds": 5, "budget": 1e-6}
    progress: list[tuple[str, float]] = []
    with listening(lambda work, share: progress.append((work, share))):
        result = EXPERIMENTS[name].run(backend, **options)
    assert min(len(case.seconds) for case in result.cases) == 1
    assert few_rounds(1e-6, 1, 5) in result.notes
    for option in options.keys() & {"size", "steps", "copies", "deepest", "batch", "budget"}:
        assert result.parameters[option] == options[option]
    assert {work for work, _ in progress} & {case.name for case in result.cases}
    assert all(0 <= share <= 1 for _, share in progress)


@given(seconds=st.floats(1e-7, 1.0), wanted=st.integers(1, 1000))
def test_a_size_is_what_is_wanted_or_what_a_product_s_seconds_allow(
    seconds: float, wanted: int
) -> None:
    def seconds_of_product(size: int) -> float:
        """Return what a product takes where five of the probed size take 5 ms."""
        return 0.001 * (size / workloads.PROBED_SIZE) ** 3

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(probing, "measure", lambda *_: (0.005, 0.005))
        size = workloads.size_up_to(Trial(backends.load("numpy", 1), {}), seconds, wanted).value
    assert size <= max(wanted, 8)
    if size != wanted:
        assert size % 8 == 0
        smallest = 8
        is_as_large_as_allowed = seconds_of_product(size) <= seconds < seconds_of_product(wanted)
        assert size == smallest or is_as_large_as_allowed


BROKEN: Mapping[str, Callable[..., Any]] = {
    "matmul": ops.add,
    "add": ops.multiply,
    "copy_to": lambda x, *_, **__: tree_map(np.ones_like, x),
    "split_and_load": lambda x, devices: np.array_split(x, len(devices))[::-1],
    # Every device keeps what it has.
    "allreduce": tuple,
}
CHANGES, LOSSES = "changes of the parameters", "first losses"


@pytest.mark.parametrize(
    ("broken", "experiment", "expected_problems"),
    [
        ("matmul", "async", ["products"]),
        ("matmul", "barriers", ["products"]),
        ("matmul", "eager-cpu", ["products"]),
        ("matmul", "parallel", ["products"]),
        ("matmul", "small-ops", ["products"]),
        ("matmul", "independent-ops", ["products", "products in a chain"]),
        ("matmul", "overlap", ["copied products"]),
        ("copy_to", "overlap", ["copied products"]),
        ("matmul", "three-way", ["products or copies"]),
        ("copy_to", "three-way", ["products or copies"]),
        ("matmul", "dependencies", ["results"]),
        ("add", "async", ["increments"]),
        ("add", "cost-model", ["increments"]),
        ("copy_to", "dependencies", ["results"]),
        ("copy_to", "graph", ["results"]),
        ("copy_to", "allreduce", ["sums"]),
        ("allreduce", "allreduce", ["sums"]),
        ("allreduce", "partitioning", [CHANGES]),
        ("allreduce", "batch-scaling", [LOSSES]),
        ("allreduce", "learning-rates", [LOSSES, "devices-differ"]),
        ("allreduce", "data-parallel", [LOSSES, "devices-differ"]),
        ("allreduce", "evaluate", ["counts-differ"]),
        (
            "allreduce",
            "building-blocks",
            ["the values of 'allreduce of 1s and 2s'", "the values of 'rebinding list"],
        ),
        (
            "split_and_load",
            "building-blocks",
            ["the values of 'an even split'", "the values of 'uneven splits'"],
        ),
        ("copy_to", "building-blocks", ["the values of 'shared memory'"]),
    ],
)
def test_what_is_wrong_makes_the_result_invalid(
    backend: Backend,
    monkeypatch: pytest.MonkeyPatch,
    broken: str,
    experiment: str,
    expected_problems: list[str],
) -> None:
    """The problems are told by what differs from NumPy's values, or by their codes."""
    if hasattr(backend, broken):
        monkeypatch.setattr(backend, broken, BROKEN[broken])
    else:
        # NumPy's operators are also what values are compared with.
        broken_ops = ModuleType("broken")
        vars(broken_ops).update({**vars(ops), broken: BROKEN[broken]})
        monkeypatch.setattr(backend, "ops", broken_ops)
    problems = EXPERIMENTS[experiment].run(backend, **small(experiment)).problems
    assert len(problems) >= len(expected_problems)
    for problem, expected in zip(problems, expected_problems, strict=False):
        if problem.code == "values-differ":
            assert problem.sentence.startswith(expected)
        else:
            assert problem.code == expected
