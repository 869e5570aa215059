"""Sizes that a run keeps for its machine, and that later runs take, whatever the framework."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import example, given, settings
from hypothesis import strategies as st

import backends
from backends import Backend, ComputationError
from parallel_core import Case, MeasurementError, Result, run_parallel
from parallel_core.command_line.run import run
from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.asynchronous_computation import increments
from parallel_core.experiments.runner import declaration, parameters
from parallel_core.experiments.runner.kept_sizes import keep_sizes, kept_sizes, place_of
from parallel_core.experiments.runner.trial import Trial
from parallel_core.system.machine import MachineWatch
from tests.parallel_core.experiments.small import small


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PARALLEL_CORE_SIZES", str(tmp_path / "new" / "sizes.json"))
    return tmp_path / "new" / "sizes.json"


@pytest.fixture(scope="module")
def numpy() -> Backend:
    return backends.load("numpy", 2, threads_per_device=1)


def run_once(backend: Backend, **options: Any) -> Result:
    return run_parallel(backend, rounds=2, **{"budget": 0.5, **options})


def keep(backend: Backend, values: dict[str, Any], budget: float = 0.5, chosen_on: str = "numpy sync") -> None:
    keep_sizes("parallel", place_of(backend, budget), values, chosen_on)


def kept(backend: Backend, *names: str, budget: float = 0.5) -> dict[str, Any] | None:
    found = kept_sizes("parallel", place_of(backend, budget), names or ["size"])
    return None if found is None else dict(found.values)


def change(file: Path, **changed: object) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **changed}))


def run_command(file: Path, rounds: int) -> tuple[str, dict[str, Any]]:
    """Run `parallel` on NumPy as it is loaded here; return what it printed, and its result."""
    path = file.parent / "run.json"
    words = f"parallel --rounds {rounds} --backend numpy --threads 1 --budget 0.5 --json {path}"
    done = CliRunner().invoke(run, words.split())
    assert done.exception is None or isinstance(done.exception, MeasurementError), done.output
    return " ".join(done.stdout.split()), json.loads(path.read_text())


def test_what_one_framework_chose_another_takes(file: Path, numpy: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parallel_core.experiments.works.RUN_SECONDS", 0.001)
    first = run_once(numpy, work="kept")
    assert first.sizes == ""
    assert first.problems or kept(numpy) == {"size": first.parameters["size"]}
    keep(numpy, {"size": 24}, chosen_on="torch async")
    second = run_once(numpy, work="kept")
    assert second.parameters["size"] == 24
    assert "torch async" in second.sizes
    read = Result.from_json(second.as_json())
    assert (read.sizes, read.chosen_by) == (second.sizes, {"size": "kept"})
    assert run_once(numpy, work="kept", size=16).parameters["size"] == 16
    # Other devices are other work.
    assert kept_sizes("parallel", "cpu:1; 2 threads, 1 workers", ["size"]) is None
    assert file.exists()


@pytest.mark.parametrize("why", ["given", "invalid", "own"])
def test_only_valid_choices_are_kept(file: Path, numpy: Backend, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    monkeypatch.setattr("parallel_core.experiments.works.RUN_SECONDS", 0.001)
    if why == "invalid":
        monkeypatch.setattr("parallel_core.experiments.runner.trial.relative_error", lambda *_: 1.0)
    run_once(numpy, work="own" if why == "own" else "new", size=24 if why == "given" else None)
    assert not file.exists()


@pytest.mark.parametrize("content", ["", "[]", "{", '{"machine": {}, "sizes": {}}', '{"sizes": 3}'])
def test_a_file_that_says_nothing_of_this_machine_is_replaced(file: Path, numpy: Backend, content: str) -> None:
    file.parent.mkdir()
    file.write_text(content)
    assert kept(numpy) is None
    keep(numpy, {"size": 8, "sizes": "1,2"})
    assert kept(numpy, "size", "sizes") == {"size": 8, "sizes": (1, 2)}
    assert kept(numpy, "size", "copies") is None


@pytest.mark.parametrize("other", [{"machine": {"processor": "another"}}, {"rule": 1}, {"rule": None}])
def test_sizes_of_another_machine_rule_or_budget_are_none(file: Path, numpy: Backend, other: dict[str, Any]) -> None:
    keep(numpy, {"size": 8})
    assert kept(numpy) == {"size": 8}
    assert kept(numpy, budget=5.0) is None
    change(file, **other)
    assert kept(numpy) is None


def test_what_a_busy_machine_chose_is_not_kept(file: Path, numpy: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = iter((0.3, 0.2, 0.4))
    watch = partial(MachineWatch, 10.0, 2.0, stolen_share=None, waiting_share=None, slowest_mhz=None, fastest_mhz=None)
    monkeypatch.setattr(parameters, "watched", lambda *_: watch(others_share=next(taken)))
    sizes = iter((8, 16, 24))
    monkeypatch.setattr("parallel_core.experiments.works.size_for", lambda *_: next(sizes))
    # Time for three tries, on any machine.
    found = run_once(numpy, work="new", budget=600.0)
    # That of the quietest moment.
    assert (found.parameters["size"], next(taken, None)) == (16, None)
    assert not file.exists()


@pytest.mark.parametrize(("taken", "spent", "size"), [(3, 9.0, 800), (1, 10.0, 608), (1, 5.0, 768), (2, 1e6, 8)])
def test_too_few_rounds_take_a_size_with_which_three_fit(numpy: Backend, taken: int, spent: float, size: int) -> None:
    trial = Trial(numpy, {"size": 800}, rounds=5, budget=10.0)
    trial._started -= spent
    trial.cases = {"run": Case("run", (0.1,) * taken, (0.1,) * taken)}
    assert declaration._size_for_rounds(trial) == size


def test_a_run_that_was_too_large_is_repeated_with_less(numpy: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(numpy, {"size": 24}, budget=600.0)
    monkeypatch.setattr(declaration, "_size_for_rounds", lambda trial: min(16, trial.parameters["size"]))
    found = run_once(numpy, budget=600.0, work="kept")
    assert (found.parameters["size"], found.chosen_by, found.sizes) == (16, {"size": "rounds"}, "")
    assert found.problems or kept(numpy, budget=600.0) == {"size": 16}


def test_nothing_is_kept_if_the_variable_is_empty(monkeypatch: pytest.MonkeyPatch, numpy: Backend) -> None:
    monkeypatch.setenv("PARALLEL_CORE_SIZES", "")
    keep(numpy, {"size": 8})
    assert kept(numpy) is None


@pytest.mark.parametrize("name", [name for name, one in EXPERIMENTS.items() if one.calibrated])
def test_what_a_run_wrote_the_next_one_takes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(increments, "SIDE", 8)
    # On one device small-ops needs no other process.
    backend = backends.load("numpy", 1 if name == "small-ops" else 2, threads_per_device=1)
    experiment, options = EXPERIMENTS[name], small(name)
    written = experiment.run(backend, **options).parameters
    sizes = {one: written[one] for one in experiment.calibrated}
    keep_sizes(name, place_of(backend, options.get("budget")), sizes, "numpy sync")
    again = experiment.run(backend, work="kept", **{one: options[one] for one in options if one not in sizes})
    assert {one: again.parameters[one] for one in sizes} == sizes
    assert again.chosen_by == dict.fromkeys(sizes, "kept")


def entry(size: object) -> dict[str, object]:
    return {"values": {"size": size}, "chosen_on": "torch async", "day": "2026-01-01"}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(st.text(max_size=5), parts, max_size=3),
    max_leaves=6,
)


@given(content=JSON | JSON.map(entry), level=st.sampled_from(["sizes", "experiment", "place"]))
@example(content=entry("many"), level="place")
@example(content=entry(-3), level="place")
@settings(max_examples=20)
def test_whatever_a_file_says_sizes_are_right_or_none(file: Path, numpy: Backend, content: object, level: str) -> None:
    keep(numpy, {"size": 8})
    of_place = {"parallel": {place_of(numpy, 0.5): content}}
    change(file, sizes={"sizes": content, "experiment": {"parallel": content}, "place": of_place}[level])
    size = (kept(numpy) or {"size": 8})["size"]
    assert size
    assert all(type(one) is int and one > 0 for one in (size if isinstance(size, tuple) else (size,)))
    keep(numpy, {"size": 16})
    assert kept(numpy) == {"size": 16}


def test_a_line_says_that_sizes_were_kept_or_that_a_run_cannot_do_them(file: Path, numpy: Backend) -> None:
    keep(numpy, {"size": 16})
    printed, _ = run_command(file, 2)
    assert "size = 16" in printed
    assert "kept for this machine, as chosen on numpy sync" in printed
    # More than any memory holds.
    keep(numpy, {"size": 10**8})
    printed, result = run_command(file, 1)
    assert result["parameters"]["size"] != 10**8
    assert result["sizes"].startswith("new, ")
    assert "sizes: new, " in printed


def test_a_failure_at_kept_sizes_says_how_to_choose_others(numpy: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ComputationError("out of memory")

    monkeypatch.setattr(declaration.Experiment, "_prepared", fail)
    with pytest.raises(ComputationError, match=r"^out of memory$"):
        run_once(numpy, work="kept")
    keep(numpy, {"size": 16})
    with pytest.raises(ComputationError, match=r"^out of memory \(at sizes kept for this machine: --work new\)$"):
        run_once(numpy, work="kept")
