"""Small operations: what is run where, values that are checked, and verdicts that follow."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import backends
import parallel_core
from backends import Backend
from parallel_core import Case, RequestError, Result
from parallel_core.experiments import measuring
from parallel_core.experiments.automatic_parallelism.small_ops import verdicts as about_small
from parallel_core.measurement.result import describe_backend
from tests.parallel_core.experiments.bounds import without_bounds

SMALL: dict[str, Any] = {"sizes": (8, 32), "rounds": 2, "budget": 600.0}

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

    def sizes(_: str, options: Mapping[str, Any]) -> Result:
        asked.append(dict(options))
        return pretended(backend, [f"one device, size {size}" for size in str(options["sizes"]).split(",")])

    monkeypatch.setattr(measuring, "measure_elsewhere", sizes)
    return asked


def test_each_size_is_timed_in_three_ways(backend: Backend, elsewhere: Elsewhere) -> None:
    result = parallel_core.run_small_ops(backend, (16, 8, 16), rounds=2, budget=600.0)
    assert elsewhere == [
        {
            "backend": backend.name,
            "engine": backend.engine,
            "devices": 1,
            "device-kind": "cpu",
            "threads": 3,
            "variant": (),
            "sizes": "8,16",
            "rounds": 2,
            # A part of what is left of its own.
            "budget": pytest.approx(300, abs=300),
        }
    ]
    ways = ("one device", "all devices", "all threads")
    assert [case.name for case in result.cases] == [f"{way}, size {size}" for way in ways for size in (8, 16)]
    medians = {case.name: case.median for case in result.cases}
    assert result.series["size"] == (8, 16)
    for way in ways[1:]:
        speedups = tuple(medians[f"one device, size {size}"] / medians[f"{way}, size {size}"] for size in (8, 16))
        assert result.series[f"speedup {way}"] == speedups
    assert result.metrics["largest_speedup"] == max(result.series["speedup all devices"])
    assert not [problem for problem in result.problems if "differ" in problem]


def test_what_is_measured_elsewhere_has_the_same_variants(
    backend: Backend, elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "variants", ("bulk-on", "temporary-space-low"))
    parallel_core.run_small_ops(backend, (8,), rounds=1, budget=600.0)
    assert elsewhere
    assert {asked["variant"] for asked in elsewhere} == {backend.variants}


def test_a_single_device_is_timed_alone(load: Callable[[int], Backend]) -> None:
    result = parallel_core.run_small_ops(load(1), (8,), rounds=1, budget=600.0)
    assert [case.name for case in result.cases] == ["one device, size 8"]
    assert result.metrics == {"largest_speedup": 1.0}
    assert "nothing to spread" in result.explanation
    assert result.answer is not None
    assert result.answer.would_change == "A second device (--devices 2)."


def test_threads_really_run_in_a_fresh_process() -> None:
    result = parallel_core.run_small_ops(
        backends.load("numpy", 2, threads_per_device=1), (8, 32), rounds=2, budget=600.0
    )
    assert len(result.series["speedup all threads"]) == 2


def test_no_size_is_refused(backend: Backend) -> None:
    with pytest.raises(RequestError, match="--sizes 8,64,512"):
        parallel_core.run_small_ops(backend, ())


def cases(*seconds: float) -> list[Case]:
    return [case(taken) for taken in seconds]


SIZES = (8, 16, 32, 64)


ALONE = cases(1, 1, 1, 1)


@pytest.mark.parametrize(
    ("spread", "crossing"),
    [
        ((1.0, 1.0, 1.0, 1.0), None),
        ((1.5, 1.5, 1.5, 1.5), None),
        ((0.5, 0.5, 0.5, 0.5), 8),
        ((1.0, 0.5, 1.0, 1.0), None),  # a single size, by chance
        ((1.0, 1.0, 1.0, 0.5), pytest.approx(32)),
        ((2.0, 2.0, 0.5, 0.5), pytest.approx(16 * 2 ** (1 / 3))),
        ((2.0, 2.0, 0.98, 0.5), pytest.approx(16 * 2 ** (0.5 / (1 / 0.98 - 0.5)))),  # half of them beyond the noise
        ((2.0, 0.98, 0.98, 0.5), None),  # a third
        ((1.0, 0.5, 0.5, 1.0), None),
    ],
)
def test_the_crossing_is_interpolated_and_beyond_the_noise(spread: tuple[float, ...], crossing: float | None) -> None:
    assert about_small.crossing_size(SIZES, ALONE, cases(*spread)) == crossing


@given(st.lists(st.tuples(st.floats(0.1, 10), st.floats(0.1, 10)), min_size=1, max_size=8))
def test_the_crossing_is_one_of_the_sizes_or_between_two(times: list[tuple[float, float]]) -> None:
    sizes = [2**power for power in range(3, 3 + len(times))]
    alone, spread = (cases(*(pair[k] for pair in times)) for k in (0, 1))
    crossing = about_small.crossing_size(sizes, alone, spread)
    faster = about_small.faster_at(sizes, spread, alone)
    if crossing is None:
        assert set(sizes) != set(faster)
    else:
        after = [size for size in sizes if size > crossing * (1 + 1e-9)] or [sizes[-1]]
        assert sizes[0] * (1 - 1e-9) <= crossing <= sizes[-1] * (1 + 1e-9)
        assert not set(after) & set(about_small.faster_at(sizes, alone, spread))


@pytest.mark.parametrize(
    ("spread", "sentences"),
    [
        (
            (1, 1, 1, 1),
            ["No size is shown from which on 2 devices were faster than one; ", "was 1.00, at size 8."],
        ),
        (
            (0.5, 0.5, 0.4, 0.5),
            ["from the smallest size (8) on; their largest speed-up was 2.50, at size 32."],
        ),
        ((2, 1, 0.5, 0.5), ["from a size of about ", "They were slower at size 8 (2.00 × as long)."]),
        ((2, 3, 1, 1), ["No size is shown from which on", "at sizes 8 and 16, most at size 16 (3.00 × as long)."]),
        ((2, 0.98, 0.5, 0.5), ["from a size of about", " on (at size 16 within the noise); their"]),
    ],
)
def test_where_several_devices_pay(spread: tuple[float, ...], sentences: list[str]) -> None:
    said = about_small.verdict(SIZES, ALONE, cases(*spread), 2), *about_small.about_losses(SIZES, ALONE, cases(*spread))
    told = without_bounds(" ".join(said))
    for sentence in sentences:
        assert sentence in told


@pytest.mark.parametrize(
    ("spread", "dispatch", "words"),
    [
        ((0.5, 0.5, 0.5, 0.5), 0.1, "Smaller operations than 8"),
        (
            (2, 2, 0.5, 0.5),
            0.95,
            "Cheaper launches, or several operations in each: at sizes 8, 16, 32 and 64 one device",
        ),
        ((1, 1, 1, 1), 0.1, "Larger operations (--sizes 64,128)."),
    ],
)
def test_what_would_change_it_follows_from_the_limit(
    queueing: Backend, spread: tuple[float, ...], dispatch: float, words: str
) -> None:
    alone = [case(1.0, dispatch=dispatch)] * 4
    assert words in about_small.what_would_change(queueing, SIZES, alone, cases(*spread))


@pytest.mark.parametrize(
    ("engine", "shares", "sentence"),
    [
        ("sync", (1, 1, 1, 1), "Nothing is queued"),
        ("async", (0.95, 0.9, 0.5, 0.1), "At sizes 8 and 16 launching is the limit"),
        (
            "async",
            (0.7, 0.5, 0.3, 0.1),
            "Launching alone was nowhere the limit: it took 70% of one device's time at most.",
        ),
        ("async", (0.8, 0.5, 0.3, 0.1), "At no size launching is shown to be the limit: it took 80%"),
    ],
)
def test_where_launching_is_the_limit(engine: str, shares: tuple[float, ...], sentence: str) -> None:
    (told,) = about_small.about_launching(SIZES, [case(1.0, dispatch=share) for share in shares], engine)
    assert sentence in told


@pytest.mark.parametrize(
    ("threaded", "sentences"),
    [
        ((1, 1, 1, 1), ["At none of 4 sizes a difference between parallel launches"]),
        ((3, 2, 1, 1), ["with the threads of all, at sizes 8 and 16, most at size 8 (3.00 ×)"]),
        (
            (2, 1, 1, 0.5),
            ["beat parallel operators, which are", "; parallel operators beat parallel launches at size 64."],
        ),
    ],
)
def test_where_launches_beat_threads(threaded: tuple[float, ...], sentences: list[str]) -> None:
    told = " ".join(about_small.about_threads(SIZES, ALONE, cases(*threaded)))
    for sentence in sentences:
        assert sentence in told


def test_where_threads_were_not_measured_nothing_is_said_of_them() -> None:
    assert about_small.about_threads(SIZES, ALONE, []) == ()
