"""The chapters' notebooks: stored with their outputs, and each run again on one framework, cell by
cell.
"""

import os
import re
import subprocess
import sys
from collections.abc import Callable
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
}
ON_MXNET = tracked("docs/lessons/on-mxnet", suffix=".ipynb")


def read(path: Path) -> NotebookNode:
    return nbformat.read(path, as_version=4)


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def sources_of_all() -> str:
    """Return the text and the code of all notebooks."""
    sources = []
    for path in NOTEBOOKS:
        sources += [cell.source for cell in read(path).cells]
    return "".join(sources)


def framework_printed_first(notebook: NotebookNode) -> str:
    """Return what the first cell of code printed: the framework that it loaded."""
    (output,) = code_cells(notebook)[0].outputs
    text: str = output.text
    return text.removesuffix("\n")


def check_outputs(notebook: NotebookNode) -> None:
    """Check that no cell failed, and that each prediction has a page and a picture."""
    for cell in code_cells(notebook):
        kinds: set[str] = set()
        for output in cell.outputs:
            assert output.output_type != "error"
            kinds.update(output.get("data", {}))
        if "predict(" in cell.source:
            assert "text/html" in kinds, cell.source
            # The stored ones are of before pictures were SVG.
            assert kinds & {"image/svg+xml", "image/png"}, cell.source


def test_every_experiment_stands_in_one() -> None:
    sources = sources_of_all()
    predicted = re.findall(r'predict\(\s*"([a-z-]+)"', sources)
    # One of them is written out in the open, and named below that.
    named = re.findall(r"`parallel-core run ([a-z-]+)[^`]*`", sources)
    assert set(EXPERIMENTS) <= {*predicted, *named}


@pytest.mark.parametrize(
    "path", [*NOTEBOOKS, *ON_MXNET], ids=lambda path: f"{path.parent.name} {path.stem}"
)
def test_the_stored_outputs_are_of_one_run_from_top_to_bottom(path: Path) -> None:
    notebook = read(path)
    for number, cell in enumerate(code_cells(notebook), 1):
        assert cell.execution_count == number
    check_outputs(notebook)
    assert "INVALID" not in path.read_text()


def test_those_run_on_mxnet_are_the_same_notebooks() -> None:
    assert [path.name for path in ON_MXNET] == [path.name for path in NOTEBOOKS]
    for path, path_on_mxnet in zip(NOTEBOOKS, ON_MXNET, strict=True):
        notebook, on_mxnet = read(path), read(path_on_mxnet)
        sources = [cell.source for cell in notebook.cells]
        assert [cell.source for cell in on_mxnet.cells] == sources
        assert framework_printed_first(on_mxnet) == "mxnet"


HEART = re.compile(r"^\*\*([\w-]+)\*\*\n\n```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def hearts() -> list[tuple[str, str]]:
    """Return the programs that stand in the notebooks' text, each after its framework's name."""
    found: list[tuple[str, str]] = []
    for path in NOTEBOOKS:
        for cell in read(path).cells:
            found += HEART.findall(cell.source)
    return found


HEARTS = hearts()
MODULES = {"MXNet": "mxnet", "PyTorch": "torch", "JAX": "jax", "parallel-core": "torch"}


def test_each_lesson_has_the_heart_of_an_experiment_in_each_framework() -> None:
    assert [name for name, _ in HEARTS] == [*MODULES] * len(NOTEBOOKS)


@pytest.mark.long
@pytest.mark.parametrize("name", MODULES)
def test_it_runs_as_it_stands_there(name: str, require: Callable[[str], None]) -> None:
    require(MODULES[name])
    codes = [code for framework, code in HEARTS if framework == name]
    # None has another one's names; JAX has its number of devices once and for all in a process.
    programs = codes if name == "JAX" else ["\n".join(f"exec({code!r}, {{}})" for code in codes)]
    for program in programs:
        subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=PATIENCE)


def test_every_setting_that_is_made_smaller_stands_in_one() -> None:
    sources = sources_of_all()
    for setting in SMALLER:
        assert setting in sources


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
    notebook = read(FOLDER / f"{name}.ipynb")
    for cell in code_cells(notebook):
        cell.outputs = []
        for setting, replacement in SMALLER.items():
            cell.source = cell.source.replace(setting, replacement)
    NotebookClient(notebook, timeout=PATIENCE, kernel_name="python3").execute()
    check_outputs(notebook)
    assert framework_printed_first(notebook) == framework
