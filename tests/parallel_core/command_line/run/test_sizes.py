"""Sizes that a run keeps for its machine, and that later runs take, whatever the framework."""

import json
from dataclasses import replace
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import backends
from backends import Backend
from parallel_core import run_parallel
from parallel_core.command_line.run import run
from parallel_core.command_line.run.sizes import keep_chosen, with_kept, work_wanted
from parallel_core.errors import MeasurementError
from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.kept_sizes import KeptSizes, keep_sizes, kept_sizes, place_of
from parallel_core.measurement.result import Result

PARALLEL = EXPERIMENTS["parallel"]
NONE_GIVEN = {"size": None}


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PARALLEL_CORE_SIZES", str(tmp_path / "new" / "sizes.json"))
    return tmp_path / "new" / "sizes.json"


@pytest.fixture(scope="module")
def numpy() -> Backend:
    return backends.load("numpy", 2)


@pytest.fixture(scope="module")
def result(numpy: Backend) -> Result:
    return replace(run_parallel(numpy, size=24, rounds=2), problems=(), machine_watch=None)


def test_what_one_framework_chose_another_takes(file: Path, numpy: Backend, result: Result) -> None:
    assert work_wanted(PARALLEL, numpy, NONE_GIVEN, "kept") is None
    keep_chosen(PARALLEL, numpy, NONE_GIVEN, "kept", result)
    kept = work_wanted(PARALLEL, numpy, NONE_GIVEN, "kept")
    assert kept is not None
    assert kept.values == {"size": 24}
    assert kept.chosen_on == "numpy sync"
    command = run.get_command(click.Context(run), "parallel")
    assert command is not None
    given = with_kept(click.Context(command), PARALLEL, {"size": None, "rounds": 5}, kept)
    assert given == {"size": 24, "rounds": 5}
    assert work_wanted(PARALLEL, numpy, NONE_GIVEN, "new") is None
    assert work_wanted(PARALLEL, numpy, {"size": 8}, "kept") is None
    # Other devices are other work.
    assert kept_sizes("parallel", "cpu:1; 2 threads, 1 workers", ["size"]) is None
    assert file.exists()


@pytest.mark.parametrize("why", ["given", "invalid", "own"])
def test_what_was_not_chosen_by_a_valid_run_is_not_kept(file: Path, numpy: Backend, result: Result, why: str) -> None:
    given = {"size": 24 if why == "given" else None}
    result = replace(result, problems=("wrong",)) if why == "invalid" else result
    keep_chosen(PARALLEL, numpy, given, "own" if why == "own" else "new", result)
    assert not file.exists()


@pytest.mark.parametrize("content", ["", "[]", "{", '{"machine": {}, "sizes": {}}', '{"sizes": 3}'])
def test_a_file_that_says_nothing_of_this_machine_is_replaced(file: Path, numpy: Backend, content: str) -> None:
    file.parent.mkdir()
    file.write_text(content)
    place = place_of(numpy)
    assert kept_sizes("parallel", place, ["size"]) is None
    keep_sizes("parallel", place, {"size": 8, "sizes": (1, 2)}, "numpy sync")
    kept = kept_sizes("parallel", place, ["size", "sizes"])
    assert isinstance(kept, KeptSizes)
    assert kept.values == {"size": 8, "sizes": (1, 2)}
    assert kept_sizes("parallel", place, ["size", "copies"]) is None


def test_sizes_of_another_machine_are_none_here(file: Path, numpy: Backend) -> None:
    keep_sizes("parallel", place_of(numpy), {"size": 8}, "numpy sync")
    document = json.loads(file.read_text())
    document["machine"]["processor"] = "another"
    file.write_text(json.dumps(document))
    assert kept_sizes("parallel", place_of(numpy), ["size"]) is None


def test_nothing_is_kept_if_the_variable_is_empty(monkeypatch: pytest.MonkeyPatch, numpy: Backend) -> None:
    monkeypatch.setenv("PARALLEL_CORE_SIZES", "")
    keep_sizes("parallel", place_of(numpy), {"size": 8}, "numpy sync")
    assert kept_sizes("parallel", place_of(numpy), ["size"]) is None


CALIBRATED = [name for name, one in EXPERIMENTS.items() if one.calibrated]


# The sizes of one are a list, and it takes a second; all take a minute.
@pytest.mark.parametrize(
    "name", [name if name == "small-ops" else pytest.param(name, marks=pytest.mark.long) for name in CALIBRATED]
)
def test_what_a_run_chose_the_next_one_takes_of_every_experiment(file: Path, name: str) -> None:
    path = file.parent / "run.json"
    path.parent.mkdir()

    def sizes(*more: str) -> dict[str, object]:
        arguments = [name, "--backend", "numpy", "--budget", "0.5", "--rounds", "1", "--json", str(path), *more]
        done = CliRunner().invoke(run, arguments)
        assert done.exception is None or isinstance(done.exception, MeasurementError), done.output
        parameters = json.loads(path.read_text())["parameters"]
        return {one: parameters[one] for one in EXPERIMENTS[name].calibrated}

    chosen = sizes("--work", "own")
    keep_sizes(name, place_of(backends.load("numpy", EXPERIMENTS[name].devices)), chosen, "numpy sync")
    assert sizes() == chosen
    assert json.loads(file.read_text())["sizes"].keys() == {name}


def test_a_run_says_that_its_sizes_were_kept(file: Path, numpy: Backend) -> None:
    keep_sizes("parallel", place_of(numpy), {"size": 16}, "numpy sync")
    done = CliRunner().invoke(run, ["parallel", "--backend", "numpy", "--rounds", "2"])
    assert "sizes: size 16: kept for this machine, as chosen on numpy sync" in " ".join(done.output.split())
    assert file.exists()
