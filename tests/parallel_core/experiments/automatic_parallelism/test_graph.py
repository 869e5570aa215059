"""The graph of a training step: recorded as it ran, the same on every backend, right, and drawn."""

import itertools
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

import parallel_core
from backends import Backend
from parallel_core import RequestError
from parallel_core.command_line import cli
from parallel_core.experiments.automatic_parallelism import graph
from parallel_core.experiments.automatic_parallelism.graph import mlp
from parallel_core.experiments.works import record
from parallel_core.measurement.task_graph import Task, without_implied, without_loads

BATCH = 12


def arrows(tasks: tuple[Task, ...]) -> set[tuple[str, str]]:
    """Return dependencies by the tasks' names and devices, without those that are implied."""
    names = [f"{task.name} on {task.device}" for task in tasks]
    return {
        (names[earlier], names[place]) for place, task in enumerate(without_implied(tasks)) for earlier in task.after
    }


def test_the_step_has_the_book_s_dependencies(backend: Backend) -> None:
    tasks = without_loads(record(backend, mlp(BATCH)))
    keeper, *workers = map(str, backend.devices)
    wanted = {(f"sum ∇{layer} on {keeper}", f"update W{layer} on {keeper}") for layer in (1, 2)}
    wanted |= {(f"copy ∇{layer} on {keeper}", f"sum ∇{layer} on {keeper}") for layer in (1, 2)}
    for device in workers:
        chain = ["copy batch", "layer 1", "layer 2", "loss", "layer 2 back", "layer 1 back"]
        wanted |= {(f"{first} on {device}", f"{then} on {device}") for first, then in itertools.pairwise(chain)}
        for layer in (1, 2):
            wanted.add((f"layer {layer} back on {device}", f"copy ∇{layer} on {keeper}"))
            wanted.add((f"update W{layer} on {keeper}", f"copy W{layer} on {device}"))
    assert arrows(tasks) == wanted
    assert len(tasks) == 24
    moved = {task.name: task.bytes // 4 for task in tasks if task.kind == "copy"}
    first, second = 785 * 512, 513 * 10
    batch = BATCH // 2 * 785
    assert moved == {"copy batch": batch, "copy ∇1": first, "copy ∇2": second, "copy W1": first, "copy W2": second}

    # New parameters wait for all that read the old ones.
    tasks = record(backend, mlp(BATCH))
    for copy in (task for task in tasks if task.name == "copy W2"):
        readers = {tasks[earlier].name for earlier in copy.after if tasks[earlier].device == copy.device}
        assert {"layer 2", "layer 2 back"} <= readers


@pytest.mark.parametrize("batch", [BATCH, 13])
def test_the_step_is_that_of_a_single_device(backend: Backend, batch: int) -> None:
    result = parallel_core.run_graph(backend, batch=batch, rounds=1, budget=600.0)
    assert result.problems == ()
    assert result.metrics["operations"] == 24
    assert result.metrics["moved_bytes"] == sum(task.bytes for task in result.tasks)
    work, chain = (result.metrics[f"{what}_seconds"] for what in ("work", "critical_path"))
    assert result.metrics["parallelism"] == pytest.approx(work / chain)
    assert all(task.seconds > 0 for task in result.tasks)


def test_the_chain_of_two_runs_on_one_device_and_is_drawn_with_its_inputs(
    load: Callable[[int], Backend], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RequestError, match=r"--devices 3"):
        parallel_core.run_graph(load(2))
    monkeypatch.setattr(graph, "XY_SIZE", 5)
    result = parallel_core.run_graph(load(1), of="xy", rounds=1, budget=600.0)
    tasks = [(task.name, task.after) for task in result.tasks]
    assert tasks == [("x", ()), ("y", ()), ("x · y", (0, 1)), ("z = … + 2", (2,))]
    assert result.metrics["operations"] == 2
    assert result.metrics["parallelism"] == pytest.approx(1)


@pytest.mark.parametrize(("devices", "batch", "least"), [(3, 1, 2), (9, 4, 8)])
def test_a_batch_has_an_image_for_every_device_that_computes(
    load: Callable[[int], Backend], devices: int, batch: int, least: int
) -> None:
    with pytest.raises(RequestError, match=rf"\(--batch {least}\)$"):
        parallel_core.run_graph(load(devices), batch=batch, rounds=1)
    assert parallel_core.run_graph(load(devices), batch=least, rounds=1, budget=600.0).problems == ()


@pytest.mark.parametrize(("of", "labels"), [("mlp", ["layer 1 back", "update W2", "copy ∇1"]), ("xy", ["x", "x · y"])])
def test_the_command_draws_what_was_recorded(of: str, labels: list[str], tmp_path: Path) -> None:
    path = tmp_path / "graph.svg"
    arguments = ["run", "graph", "--backend", "numpy", "--of", of, "--batch", "8", "--rounds", "1", "--plot", str(path)]
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, done.output
    texts = [element.text for element in ElementTree.parse(path).iter() if element.tag.endswith("}text")]
    assert {*labels, "cpu:1"} <= set(texts)
    assert any(text and "recorded on numpy" in text and "sync engine" in text for text in texts)
