"""Independent operations: what is run where, values that are checked, and verdicts that follow."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

import backends
import parallel_core
from backends import Array, Backend
from parallel_core import Case, Result
from parallel_core.experiments import measuring
from parallel_core.experiments.automatic_parallelism.independent_ops import timing
from parallel_core.experiments.automatic_parallelism.independent_ops import verdicts as about_independent
from parallel_core.measurement.confidence_intervals import Interval
from parallel_core.measurement.result import describe_backend
from parallel_core.measurement.verdicts import BETWEEN_PROCESSES, times_as_long
from tests.parallel_core.experiments.bounds import without_bounds

SMALL: dict[str, Any] = {"workers_compared": (1,), "size": 64, "rounds": 2, "budget": 600.0}

Elsewhere = list[dict[str, Any]]


def case(seconds: float, name: str = "any", dispatch: float | None = None) -> Case:
    return Case(name, (seconds,) * 3, (dispatch or seconds / 2,) * 3)


def pretended(backend: Backend, names: list[str]) -> Result:
    cases = tuple(case(2.0, name) for name in names)
    return Result("any", describe_backend(backend), {}, cases, {}, {"max_relative_error": 0.5e-5}, "It was pretended.")


@pytest.fixture
def elsewhere(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> Elsewhere:
    """Pretend the other processes, and keep the options that they were asked to take."""
    asked: Elsewhere = []

    def products(_: str, options: Mapping[str, Any]) -> Result:
        asked.append(dict(options))
        workers = options["workers"]
        called = f"{workers} {'worker' if workers == 1 else 'workers'}"
        return pretended(backend, [f"independent, {called}", f"chain, {called}"])

    monkeypatch.setattr(measuring, "measure_elsewhere", products)
    return asked


def test_workers_and_threads_that_a_backend_has_not_are_measured_elsewhere(
    backend: Backend, elsewhere: Elsewhere
) -> None:
    result = parallel_core.run_independent_ops(backend, (1, 2), size=48, rounds=2, budget=600.0)
    names = [case.name for case in result.cases]
    here, threaded = ["independent, 1 worker", "chain, 1 worker"], "independent, 1 worker, 2 threads each"
    several = ["independent, 2 workers", "chain, 2 workers"] if backend.engine == "async" else []
    assert names == [*here, *several, threaded, "chain, 1 worker, 2 threads each"]
    assert [(asked["workers"], asked["threads"]) for asked in elsewhere] == [(2, 1), (1, 2)][-len(names) // 2 + 1 :]
    # One device's products, of the same size, and no processes of its own.
    for asked in elsewhere:
        assert (asked["devices"], asked["size"], asked["workers-compared"]) == (1, 48, asked["workers"])
        assert (asked["backend"], asked["engine"]) == (backend.name, backend.engine)
    medians = {case.name: case.median for case in result.cases}
    assert result.metrics["threads_speedup"] == medians[here[0]] / medians[threaded]
    assert result.metrics["parallel_speedup"] == (medians[here[0]] / medians[several[0]] if several else 1)
    assert result.checks["max_relative_error"] < 1e-4
    # Before the processes and after them.
    assert {case.name: len(case.seconds) for case in result.cases[:2]} == dict.fromkeys(here, 4)
    by_most = (several or here)[::-1]
    assert result.metrics["independence_speedup_most_workers"] == medians[by_most[0]] / medians[by_most[1]]
    assert result.answer is not None
    _, workers, threads = result.answer.sentences
    assert ("Nothing is queued" in workers) == (backend.engine == "sync")
    assert threads.startswith("With twice the threads within each, ")


def test_one_number_of_workers_starts_no_process(backend: Backend, elsewhere: Elsewhere) -> None:
    result = parallel_core.run_independent_ops(backend, (1,), size=48, rounds=1, budget=600.0)
    assert elsewhere == []
    assert [case.name for case in result.cases] == ["independent, 1 worker", "chain, 1 worker"]
    assert result.metrics["parallel_speedup"] == 1


def test_wrong_products_make_the_result_invalid(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    def one_too_few(backend: Backend, x: Array) -> Array:
        y = x
        for _ in range(timing.PRODUCTS - 1):
            y = backend.launch(backend.ops.matmul, y, x)
        return y

    monkeypatch.setattr(timing, "chain", one_too_few)
    (problem,) = parallel_core.run_independent_ops(backend, (1,), size=16, rounds=1, budget=600.0).problems
    assert problem.startswith("products differ from NumPy's by ")


@pytest.mark.parametrize("name", ["mxnet", "numpy"])
def test_the_other_workers_really_run_in_fresh_processes(require: Callable[[str], None], name: str) -> None:
    require(name)
    backend = backends.load(name, 2, "cpu", None, 1)
    result = parallel_core.run_independent_ops(backend, size=32, rounds=2, budget=600.0)
    assert len(result.cases) == (6 if name == "mxnet" else 4)
    assert result.problems == result.disturbances


def between(speedup: float) -> Interval:
    """Return a ratio of times of different processes, as well as it can be known."""
    return times_as_long(case(speedup), case(1.0), BETWEEN_PROCESSES)


@pytest.mark.parametrize(
    ("chain", "sentence"),
    [
        (1.0, "In order: independent products by one worker were 1.00 × as fast as a chain of as many."),
        (1.15, "In order: independent products by one worker were 1.15"),
        (1.3, "The noise leaves open whether independent products by one worker ran in order: they were 1.30"),
        (1.9, "In parallel: independent products by one worker were 1.90"),
        (0.5, "In order: independent products by one worker were 0.50"),
    ],
)
def test_whether_one_worker_runs_in_order(chain: float, sentence: str) -> None:
    assert sentence in without_bounds(about_independent.verdict(case(1.0), case(chain), 1))


def test_no_order_is_told_within_a_large_noise() -> None:
    noisy = Case("any", (1.0, 1.6, 2.2), (0.1,) * 3)
    told = without_bounds(about_independent.verdict(case(1.0), noisy, 1))
    assert told.startswith("The noise leaves open whether independent products by one worker ran in order")


@pytest.mark.parametrize(
    ("many", "sentence"),
    [
        (1.92, "By 2 workers instead of 1, independent products were 1.92 × as fast: they ran at the same"),
        (1.92, "at the same time."),
        (1.43, "× as fast: they ran at the same time, in part or in full."),
        (1.12, "× as fast: too little to show that any ran at the same time."),
        (1.02, "× as fast: the noise leaves open whether any ran at the same time"),
        (0.67, "× as fast: more workers were no help"),
    ],
)
def test_what_more_workers_make_of_independent_products(many: float, sentence: str) -> None:
    assert sentence in without_bounds(about_independent.about_workers("async", "cpu", between(many), (1, 2)))


@pytest.mark.parametrize(
    ("engine", "kind", "sentence"),
    [
        ("sync", "cpu", "Nothing is queued"),
        ("async", "gpu", "1 queue in order"),
        ("async", "cpu", "by 1 worker alone"),
    ],
)
def test_why_workers_were_not_compared(engine: str, kind: str, sentence: str) -> None:
    assert sentence in without_bounds(about_independent.about_workers(engine, kind, between(1.0), (1, 1)))


@pytest.mark.parametrize(
    ("many", "counts", "cores", "words"),
    [
        (1.9, (1, 2), 2, "(--workers 2)"),
        (1.0, (1,), 2, "(--workers-compared 1,2)"),
        (0.67, (1, 2), 1, "More cores than 1, which 2 workers or threads share"),
        (0.67, (1, 2), 2, "Larger products (--size 80)"),
        (1.02, (1, 2), 2, "--rounds 20 --budget 60"),
    ],
)
def test_what_would_change_it_follows_from_the_workers(
    queueing: Backend, many: float, counts: tuple[int, ...], cores: int, words: str
) -> None:
    assert words in about_independent.what_would_change(queueing, between(many), counts, (2, cores), 40)


@pytest.mark.parametrize(
    ("many", "sentence"),
    [(1.0, "each product waits"), (0.6, "handing it over costs something"), (2.0, "figures that compare them are")],
)
def test_what_more_workers_make_of_a_chain(many: float, sentence: str) -> None:
    assert sentence in without_bounds(about_independent.about_chain(between(many)))


@pytest.mark.parametrize(("threaded", "sentence"), [(1.0, "no difference"), (2.0, "× as fast."), (0.5, "0.50")])
def test_what_threads_make_of_them(threaded: float, sentence: str) -> None:
    assert sentence in without_bounds(about_independent.about_threads(between(threaded)))


def test_too_few_cores_are_said() -> None:
    assert "2 workers or threads share 1 core here" in about_independent.about_cores(2, 1)
    assert about_independent.about_cores(2, 2) == ""


def test_what_is_measured_elsewhere_has_the_same_variants(
    backend: Backend, elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "variants", ("bulk-on", "temporary-space-low"))
    parallel_core.run_independent_ops(backend, (1, 2), size=16, rounds=1, budget=600.0)
    assert elsewhere
    assert {asked["variant"] for asked in elsewhere} == {backend.variants}


def cases(*seconds: float) -> list[Case]:
    return [case(taken) for taken in seconds]
