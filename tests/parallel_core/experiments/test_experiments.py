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
from parallel_core.experiments import EXPERIMENTS, copying, workloads
from parallel_core.experiments.asynchronous_computation import barriers, increments
from parallel_core.experiments.automatic_parallelism import dependencies, small_ops
from parallel_core.experiments.runner.trial import Trial
from parallel_core.experiments.training_on_multiple_gpus.allreduce import sums
from parallel_core.measurement.progress import listening
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
    "eager-cpu",
    "independent-ops",
    "small-ops",
}
MEASURING_A_SINGLE_DEVICE |= {"dependencies", "data-parallel", "evaluate"}
LONGEST = 220
"""Characters of an answer's sentence, without the bounds of its figures."""
BOUNDS = re.compile(r" \(−?[\d.,]+(?:–| … )−?[\d.,]+%?\)")


def check_answer(result: Result) -> None:
    """Assert that a result has an answer of two or three short sentences with figures, or says why
    it has none.
    """
    assert result.answer is not None
    sentences, change = result.answer.sentences, result.answer.would_change
    options = options_of(command_of(EXPERIMENTS[result.experiment]))
    assert set(re.findall(r"--[a-z][a-z-]*", " ".join((*sentences, change)))) <= options
    if result.problems or result.explanation.startswith("No verdict: "):
        *by_counts, last = sentences
        # Counts answer although times cannot be true, but not although values are wrong.
        is_counted = bool(result.counts) and set(result.problems) == set(result.disturbances)
        assert bool(by_counts) == is_counted
        no_clock = "By the clock nothing is known: "
        assert last.startswith(no_clock if is_counted else ("No verdict: ", "No answer: "))
        return
    assert sentences[0] == result.explanation
    meanings_of_counts = {result.bands[name] for name in result.counts}
    assert 1 <= len(sentences) <= 3 + len(meanings_of_counts)
    assert all(
        re.search(r"\d", sentence)
        for sentence in sentences
        if not sentence.startswith("No answer: ")
    )
    for sentence in (*sentences, change):
        assert sentence.endswith(".")
        # Counts that mean the same stand in one sentence.
        for part in BOUNDS.sub("", sentence).split("; "):
            assert len(part) <= LONGEST, sentence


def check_counts(result: Result) -> None:
    """Assert that what an experiment counts was counted by the framework's profiler, and is 0
    without queues; or was counted by the program.
    """
    declared = EXPERIMENTS[result.experiment].counts
    has_profiler = result.backend["name"] != "numpy"
    counts = [count for count in declared if has_profiler or count.tally is None]
    if result.backend["name"] == "jax":
        # Its profile does not tell which way copies go, nor which operations a task has.
        counts = [count for count in counts if count.name in result.counts]
    # Some need an option, but not the first.
    assert list(result.counts) == [count.name for count in counts if count.name in result.counts]
    # What the program counts may need another process.
    assert not counts or counts[0].tally is None or counts[0].name in result.counts
    for count in (count for count in counts if count.name in result.counts):
        counted = result.counts[count.name]
        assert 0 <= counted.count <= counted.of
        assert counted.count in counted.repetitions
        assert result.bands[count.name] == count.band(counted.count, counted.of).code
        if count.tally is None:
            continue
        assert result.backend["name"] in counted.witness
        if result.backend["engine"] == "sync":
            assert counted.count == 0
    if counts and counts[0].name in result.counts:
        first = result.counts[counts[0].name]
        assert f": {first.count} of {first.of} {counts[0].counted}" in result.explanation
    assert Result.from_json(result.as_json()).counts == result.counts


@pytest.fixture(autouse=True)
def _soon_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """Multiply twice instead of often, and add up less; how much memory a queue holds is tested
    with `async`, on larger arrays.
    """
    monkeypatch.setattr(small_ops, "TARGET_SECONDS", 0.0)
    monkeypatch.setattr(increments, "SIDE", 64)
    monkeypatch.setattr(sums, "COUNTED_BYTES", 2**16)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_result_is_checked_and_described(load_any: Callable[[int], Backend], name: str) -> None:
    backend = load_any(3)
    found = EXPERIMENTS[name].run(backend, **small(name))
    check_answer(found)
    result = json.loads(json.dumps(found.as_json(), allow_nan=False))
    assert (result["schema"], result["experiment"]) == (2, name)
    assert result["bands"].keys() <= result["metrics"].keys() | result["counts"].keys()
    check_counts(found)
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
        assert all(
            0 <= sent <= done
            for sent, done in zip(case["dispatch_seconds"], case["seconds"], strict=True)
        )
        assert name not in ON_A_BUDGET or len(case["bare_seconds"]) in (0, 2)
    assert name not in ON_A_BUDGET or any(case["bare_seconds"] for case in result["cases"])
    assert result["environment"]["cores"] >= 1


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_single_device_is_measured_or_refused(load: Callable[[int], Backend], name: str) -> None:
    if name in MEASURING_A_SINGLE_DEVICE:
        found = EXPERIMENTS[name].run(load(1), **small(name))
        assert found.checks["max_relative_error"] < 1e-4
        check_answer(found)
        return
    message = rf"^the experiment '{name}' .* at least 2 devices \(--devices 2\)$"
    with pytest.raises(
        RequestError, match=r"^the graph .* \(--devices 3\)$" if name == "graph" else message
    ):
        EXPERIMENTS[name].run(load(1), **small(name))


@pytest.mark.parametrize(
    "name", ["parallel", "overlap", "independent-ops", "three-way", "barriers", "dependencies"]
)
def test_sizes_are_chosen_when_none_is_given(
    backend: Backend, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = {workloads: "RUN_SECONDS", copying: "COPYING_SECONDS", barriers: "TARGET_SECONDS"}
    for module, constant in (seconds | {dependencies: "MULTIPLICATION_SECONDS"}).items():
        monkeypatch.setattr(module, constant, 1e-3)
    experiment = EXPERIMENTS[name]
    given_ones = {
        one: value for one, value in small(name).items() if one not in experiment.calibrated
    }
    parameters = experiment.run(backend, **{**given_ones, "rounds": 1}).parameters
    assert parameters["size"] % 8 == 0
    assert all(parameters[one] > 0 for one in experiment.calibrated)


@pytest.mark.parametrize("name", ON_A_BUDGET)
def test_the_least_of_budgets_allows_a_round_of_the_size_that_is_given(
    backend: Backend, name: str
) -> None:
    options = {**small(name), "rounds": 5, "budget": 1e-6}
    told: list[tuple[str, float]] = []
    with listening(lambda what, share: told.append((what, share))):
        result = EXPERIMENTS[name].run(backend, **options)
    assert min(len(case.seconds) for case in result.cases) == 1
    assert any(note.startswith("The budget of 1e-06 s allowed 1 of 5 ") for note in result.notes)
    sizes = {
        word: value
        for word, value in options.items()
        if word in ("size", "steps", "copies", "deepest", "batch")
    }
    assert sizes.items() <= result.parameters.items()
    assert result.parameters["budget"] == 1e-6
    assert {case.name for case in result.cases} & {what for what, _ in told}
    assert all(0 <= share <= 1 for _, share in told)


@given(st.floats(1e-7, 1.0), st.integers(1, 1000))
def test_a_size_is_what_is_wanted_or_what_a_product_s_seconds_allow(
    seconds: float, wanted: int
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        # Five products of the size that is probed take a thousandth of a second each.
        patched.setattr(workloads, "measure", lambda *_: (0.005, 0.005))
        size = workloads.size_up_to(Trial(backends.load("numpy", 1), {}), seconds, wanted).value
    of_one = 0.001 / workloads.PROBED_SIZE**3
    assert size <= max(wanted, 8)
    assert size == wanted or (
        size % 8 == 0 and (size == 8 or size**3 * of_one <= seconds < wanted**3 * of_one)
    )


@pytest.mark.parametrize(
    ("experiment", "options", "message"),
    [
        ("small-ops", {"sizes": ()}, "--sizes 8,64,512"),
        ("allreduce", {"algorithms": ("butterfly",)}, "unknown algorithm 'butterfly'"),
        ("allreduce", {"algorithms": ()}, "no algorithm"),
        ("allreduce", {"sizes": ()}, "no size"),
        ("allreduce", {"sizes": (2**60,)}, "choose smaller --sizes"),
        ("batch-norm", {"rows": 7}, "choose at least 8"),
        (
            "batch-scaling",
            {"batch_size": 20, "steps": 10},
            "10 steps of 3 × 20 images are more than the 300 .*--steps",
        ),
        ("partitioning", {"narrow": 2, "wide": 1}, "must not be wider"),
        ("partitioning", {"batch": 2}, "leaves one of 3 devices or 2 micro-batches without rows"),
        ("partitioning", {"batch": 4, "micro_batches": 5}, "or 5 micro-batches without rows"),
        ("partitioning", {"devices": 9}, "8 channels for 9 devices"),
        ("graph", {"devices": 2}, r"\(--devices 3\)$"),
        ("graph", {"batch": 1}, r"\(--batch 2\)$"),
        ("graph", {"batch": 4, "devices": 9}, r"\(--batch 8\)$"),
        (
            "eager-cpu",
            {"against": "torch"},
            r"^unknown contrast 'torch' \(known: others, none, jax:async, ",
        ),
        ("eager-cpu", {"against": "torch:eager"}, "unknown contrast 'torch:eager'"),
        ("eager-cpu", {"against": "torch:sync,"}, "unknown contrast ''"),
        ("eager-cpu", {"against": "torch:sync,numpy:sync"}, "'numpy:sync' is what is measured"),
    ],
)
def test_what_cannot_be_done_is_refused(
    load: Callable[[int], Backend], experiment: str, options: dict[str, Any], message: str
) -> None:
    asked = {"devices": 3, **small(experiment), **options}
    with pytest.raises(RequestError, match=message):
        EXPERIMENTS[experiment].run(load(asked.pop("devices")), **asked)


BROKEN: Mapping[str, Callable[..., Any]] = {
    "matmul": ops.add,
    "add": ops.multiply,
    "copy_to": lambda x, *_, **__: tree_map(np.ones_like, x),
    "split_and_load": lambda x, devices: np.array_split(x, len(devices))[::-1],
    # Every device keeps what it has.
    "allreduce": tuple,
}
CHANGES, LOSSES = "changes of the parameters differ", "first losses differ"


@pytest.mark.parametrize(
    ("broken", "experiment", "wrong"),
    [
        *(
            ("matmul", name, ["products differ"])
            for name in ("async", "barriers", "eager-cpu", "parallel")
        ),
        ("matmul", "small-ops", ["products differ"]),
        ("matmul", "independent-ops", ["products differ", "products in a chain differ"]),
        *((verb, "overlap", ["copied products differ"]) for verb in ("matmul", "copy_to")),
        *((verb, "three-way", ["products or copies differ"]) for verb in ("matmul", "copy_to")),
        ("matmul", "dependencies", ["results differ"]),
        *(("add", name, ["increments differ"]) for name in ("async", "cost-model")),
        *(("copy_to", name, ["results differ"]) for name in ("dependencies", "graph")),
        *((verb, "allreduce", ["sums differ"]) for verb in ("copy_to", "allreduce")),
        *(("allreduce", name, [CHANGES]) for name in ("batch-norm", "partitioning")),
        ("allreduce", "batch-scaling", [LOSSES]),
        ("allreduce", "learning-rates", [LOSSES, f"with the same batch the {LOSSES}"]),
        ("allreduce", "data-parallel", [LOSSES, "the devices' parameters"]),
        ("allreduce", "evaluate", ["2 devices counted "]),
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
    wrong: list[str],
) -> None:
    if hasattr(backend, broken):
        monkeypatch.setattr(backend, broken, BROKEN[broken])
    else:
        # NumPy's operators are also what values are compared with.
        own = ModuleType("broken")
        vars(own).update({**vars(ops), broken: BROKEN[broken]})
        monkeypatch.setattr(backend, "ops", own)
    problems = EXPERIMENTS[experiment].run(backend, **small(experiment)).problems
    assert len(problems) >= len(wrong)
    for problem, begin in zip(problems, wrong, strict=False):
        assert problem.startswith(begin)
