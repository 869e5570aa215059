"""The chapters' notebooks: stored with their outputs, and each run again on one framework, cell by
cell.
"""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode

from parallel_core.experiments import EXPERIMENTS
from tests.tree import ROOT, tracked

FOLDER = ROOT / "docs" / "lessons"
NOTEBOOKS = [path for path in tracked("docs/lessons", suffix=".ipynb") if path.parent == FOLDER]
PATIENCE = 300
"""Seconds that a cell may take."""
# A second run tests behaviour and no times, so little work is enough.
SMALLER = {
    '"rounds": 5, "budget": 8': '"rounds": 1, "budget": 1',
    "size=300": "size=64",
    "size=400": "size=64",
    "size=600": "size=64",
    "size=640": "size=64",
    "deepest=16": "deepest=2",
    "steps=1000": "steps=100",
    "largest=2**17": "largest=2**12",
    "(8, 32, 128, 512)": "(8, 64)",
    "batch=512": "batch=16",
    "batch_size=256": "batch_size=32",
    "steps=2, timeline": "steps=1, batch_size=16, timeline",
    '"limit": 20, "rounds": 3': '"limit": 2, "rounds": 1',
    "(2**16, 2**20, 2**23)": "(2**10, 2**12)",
    "train_steps=20, images=2000": "train_steps=1, images=100",
    "wide=2, batch=32": "wide=1, batch=8",
    "rows=64": "rows=16",
}
ON_MXNET = tracked("docs/lessons/on-mxnet", suffix=".ipynb")


def read(path: Path) -> NotebookNode:
    return nbformat.read(path, as_version=4)


def code(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def check_outputs(notebook: NotebookNode) -> None:
    for cell in code(notebook):
        assert not [output for output in cell.outputs if output.output_type == "error"]
        if "predict(" in cell.source:
            kinds = {kind for output in cell.outputs for kind in output.get("data", {})}
            assert "text/html" in kinds, cell.source
            # The stored ones are of before pictures were SVG.
            assert {"image/svg+xml", "image/png"} & kinds, cell.source


def test_there_is_one_for_each_chapter() -> None:
    chapters = dict.fromkeys(experiment.chapter for experiment in EXPERIMENTS.values())
    titles = {
        read(path).cells[0].source.splitlines()[0].removeprefix("# ").lower() for path in NOTEBOOKS
    }
    assert titles == {chapter.lower() for chapter in chapters}


def test_every_experiment_stands_in_one_and_every_exercise_is_linked_by_one() -> None:
    sources = "".join(cell.source for path in NOTEBOOKS for cell in read(path).cells)
    # One of them is written out in the open, and named below that.
    told = {
        *re.findall(r'predict\(\s*"([a-z-]+)"', sources),
        *re.findall(r"`parallel-core run ([a-z-]+)[^`]*`", sources),
    }
    assert {*EXPERIMENTS} <= told
    linked = re.findall(r"\(/exercises/([a-z-]+)\.md\)", sources)
    pages = [path.stem for path in tracked("docs/exercises", suffix=".md")]
    assert sorted([*linked, "index"]) == sorted(pages)
    # A guess stands wherever something is measured.
    for guess in re.findall(r"predict\(\"[a-z-]+\", ([^,]+)", sources):
        float(guess)


@pytest.mark.parametrize(
    "path", [*NOTEBOOKS, *ON_MXNET], ids=lambda path: f"{path.parent.name} {path.stem}"
)
def test_the_stored_outputs_are_of_one_run_from_top_to_bottom(path: Path) -> None:
    notebook = read(path)
    assert [cell.execution_count for cell in code(notebook)] == list(
        range(1, len(code(notebook)) + 1)
    )
    check_outputs(notebook)
    assert "INVALID" not in path.read_text()


def test_those_run_on_mxnet_are_the_same_notebooks() -> None:
    assert [path.name for path in ON_MXNET] == [path.name for path in NOTEBOOKS]
    for path, stored in zip(NOTEBOOKS, ON_MXNET, strict=True):
        assert [cell.source for cell in read(stored).cells] == [
            cell.source for cell in read(path).cells
        ]
        (loaded,) = code(read(stored))[0].outputs
        assert loaded.text == "mxnet\n"


HEART = re.compile(r"^\*\*([\w-]+)\*\*\n\n```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HEARTS = [
    heart for path in NOTEBOOKS for cell in read(path).cells for heart in HEART.findall(cell.source)
]
MODULES = {"MXNet": "mxnet", "PyTorch": "torch", "JAX": "jax", "parallel-core": "torch"}


def test_each_lesson_has_the_heart_of_an_experiment_in_each_framework() -> None:
    assert [name for name, _ in HEARTS] == [*MODULES] * len(NOTEBOOKS)


def programs() -> Iterator[tuple[str, list[str]]]:
    """Iterate over what runs in one process: all of a framework, but JAX has its number of devices
    once and for all.
    """
    for name in MODULES:
        codes = [code for other, code in HEARTS if other == name]
        yield from ((name, [code]) for code in codes) if name == "JAX" else ((name, codes),)


@pytest.mark.long
@pytest.mark.parametrize(("name", "codes"), [*programs()])
def test_it_runs_as_it_stands_there(
    name: str, codes: list[str], require: Callable[[str], None]
) -> None:
    require(MODULES[name])
    # None has another one's names.
    program = "\n".join(f"exec({code!r}, {{}})" for code in codes)
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=PATIENCE)


def test_every_setting_that_is_made_smaller_stands_in_one() -> None:
    sources = "".join(cell.source for path in NOTEBOOKS for cell in code(read(path)))
    assert [setting for setting in SMALLER if setting not in sources] == []


# Each on one framework and engine: their experiments are tested on all of them.
@pytest.mark.long
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
        for setting, replacement in SMALLER.items():
            cell.source = cell.source.replace(setting, replacement)
    NotebookClient(notebook, timeout=PATIENCE, kernel_name="python3").execute()
    check_outputs(notebook)
    (loaded,) = code(notebook)[0].outputs
    assert loaded.text == f"{framework}\n"
