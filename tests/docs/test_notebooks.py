"""The chapters' notebooks: stored with their outputs, and each run again on one framework, cell by cell."""

import os
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode

from parallel_core.experiments import EXPERIMENTS

pytestmark = pytest.mark.long

FOLDER = Path(__file__).parents[2] / "docs" / "tutorials"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
PATIENCE = 300
"""Seconds that a cell may take."""
# A second run tests behaviour and no times, so little work is enough. One cell of all starts processes of its own; the
# others' are tested with the experiments.
SMALLER = {
    "rounds=3": "rounds=1",
    "(1000, 1000)": "(100, 100)",
    "(800, 800)": "(80, 80)",
    "size=300": "size=64",
    "size=400": "size=64",
    "size=600": "size=64",
    "(8, 16, 32, 64, 128, 256, 512)": "(8, 64)",
    "copies=20": "copies=2",
    "steps=2000": "size=64, steps=100",
    "steps=5": "steps=2, batch_size=16",
    "batch_size=256, limit=60": "batch_size=32, limit=4",
    "batch_size=32, limit=60": "batch_size=8, limit=4",
    "run_partitioning(backend": "run_partitioning(backend, 1, 2, batch=8",
    "(2**14, 2**18, 2**22)": "(2**10, 2**12, 2**14)",
    "asynchrony = parallel_core.run_async(backend": (
        "from parallel_core.experiments.asynchronous_computation.asynchronous import queue_depth\n"
        "queue_depth.SIDE = 64\nasynchrony = parallel_core.run_async(backend"
    ),
    "load_fashion_mnist()": (
        "load_fashion_mnist()\nfrom dataclasses import replace\n"
        "data = replace(data, test_images=data.test_images[:100], test_labels=data.test_labels[:100])"
    ),
    "run_cost_model(backend": "run_cost_model(backend, largest=2**12",
    "run_independent_ops(backend": "run_independent_ops(backend, workers_compared=()",
    "run_eager_cpu(backend": "run_eager_cpu(backend, against='none'",
}
ON_MXNET = sorted((FOLDER / "on-mxnet").glob("*.ipynb"))
STORED = pytest.mark.parametrize("path", [*NOTEBOOKS, *ON_MXNET], ids=lambda path: f"{path.parent.name} {path.stem}")


def read(path: Path) -> NotebookNode:
    return nbformat.read(path, as_version=4)


def code(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def kinds(cell: NotebookNode) -> set[str]:
    return {kind for output in cell.outputs for kind in output.get("data", {})}


def smaller(source: str) -> str:
    for setting, replacement in SMALLER.items():
        source = source.replace(setting, replacement)
    return source


def check_outputs(notebook: NotebookNode) -> None:
    for cell in code(notebook):
        assert not [output for output in cell.outputs if output.output_type == "error"]
        if "parallel_core.run_" in cell.source:
            assert {"text/html", "image/png"} <= kinds(cell), cell.source
        elif "parallel_core.explain(" in cell.source:
            assert "text/markdown" in kinds(cell), cell.source


def test_there_is_one_for_each_chapter() -> None:
    chapters = dict.fromkeys(experiment.chapter for experiment in EXPERIMENTS.values())
    titles = {read(path).cells[0].source.splitlines()[0].removeprefix("# ").lower() for path in NOTEBOOKS}
    assert titles == {chapter.lower() for chapter in chapters}


def test_every_experiment_stands_in_one() -> None:
    sources = "".join(cell.source for path in NOTEBOOKS for cell in code(read(path)))
    missing = [name for name in EXPERIMENTS if f"run_{name.replace('-', '_')}(" not in sources]
    assert not missing


@STORED
def test_the_stored_outputs_are_of_one_run_from_top_to_bottom(path: Path) -> None:
    notebook = read(path)
    assert [cell.execution_count for cell in code(notebook)] == list(range(1, len(code(notebook)) + 1))
    check_outputs(notebook)
    assert "INVALID" not in path.read_text()


def test_those_run_on_mxnet_are_the_same_notebooks() -> None:
    assert [path.name for path in ON_MXNET] == [path.name for path in NOTEBOOKS]
    for path, stored in zip(NOTEBOOKS, ON_MXNET, strict=True):
        assert [cell.source for cell in read(stored).cells] == [cell.source for cell in read(path).cells]
        (loaded,) = code(read(stored))[0].outputs
        assert loaded.text.startswith("mxnet ")


def test_every_setting_that_is_made_smaller_stands_in_one() -> None:
    sources = "".join(cell.source for path in NOTEBOOKS for cell in code(read(path)))
    assert [setting for setting in SMALLER if setting not in sources] == []


# Each on one framework and engine: their experiments are tested on all of them.
@pytest.mark.parametrize(
    ("name", "framework"),
    [
        ("asynchronous-computation", "mxnet"),
        ("automatic-parallelism", "torch"),
        ("training-on-multiple-gpus", "torch"),
    ],
)
def test_it_runs_again(
    name: str, framework: str, require: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    require(framework)
    monkeypatch.setitem(os.environ, "PARALLEL_CORE_BACKEND", framework)
    notebook = read(next(path for path in NOTEBOOKS if path.stem == name))
    for cell in code(notebook):
        cell.outputs = []
        cell.source = smaller(cell.source)
    NotebookClient(notebook, timeout=PATIENCE, kernel_name="python3").execute()
    check_outputs(notebook)
    (loaded,) = code(notebook)[0].outputs
    assert loaded.text.startswith(f"{framework} ")
