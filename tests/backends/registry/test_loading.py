"""Backends are found by name and loaded when asked for; what cannot be had is said in one line."""

import json
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import backends
from backends import BackendError
from backends.host import blas_libraries
from backends.installation import frameworks
from backends.installation.frameworks import diagnose_absence
from backends.mxnet.installation import UNSET_ROLE
from backends.registry import named, offered, title, variants
from backends.registry.files import FILES
from backends.registry.variants import choose_variants, in_words
from tests.backends.conftest import Require
from tests.conftest import FRAMEWORKS, RunProgram

PLUG_IN = Path(__file__).parent.parent / "plug_in.py"
NO_VARIABLE = 'src/postoffice.cc:23: Check  notnull: Environment::Get()->find("DMLC_NUM_WORKER") '


def test_more_gpus_than_exist_are_refused(require: Require, framework_name: str) -> None:
    require(framework_name)
    with pytest.raises(
        BackendError, match=f"{framework_name} finds (no|[0-9]+) GPUs?, and so no gpu:99"
    ):
        backends.load(framework_name, "gpu:99", "gpu", "async", 1)


def test_more_threads_than_a_process_should_have_are_refused() -> None:
    with pytest.raises(BackendError, match="are 6000, more than"):
        backends.load("torch", 3, "cpu", "async", threads_per_device=1000, workers_per_device=2)


@pytest.fixture
def unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the answer about MXNet's kernels from being asked, and kept, while MXNet is hidden."""
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")


@pytest.mark.usefixtures("unasked")
@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_framework_that_is_not_installed_is_said_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(BackendError) as refused:
        backends.load(name)
    assert str(refused.value) == str(diagnose_absence(name))


@pytest.mark.usefixtures("unasked")
@pytest.mark.parametrize(
    ("environment", "code", "message"),
    [
        (
            {},
            "import numpy\nnumpy.gone",
            r"mxnet cannot be imported \(AttributeError: .*Python < 3.12 and numpy < 1",
        ),
        # As MXNet 1.9.1 says it of a role without its other variables.
        (
            {"DMLC_ROLE": "servant"},
            f"raise OSError({NO_VARIABLE!r})",
            f"left in the environment: {UNSET_ROLE}$",
        ),
        # Its import would not return.
        (
            {"DMLC_ROLE": "server"},
            "raise OSError('imported')",
            f"serve other processes for good: {UNSET_ROLE}$",
        ),
    ],
)
def test_a_framework_that_breaks_at_import_is_said_with_its_reason_and_leaves_no_variables(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    environment: dict[str, str],
    code: str,
    message: str,
) -> None:
    (tmp_path / "mxnet.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mxnet", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    before = dict(os.environ)
    with pytest.raises(BackendError, match=message):
        backends.load("mxnet", engine="sync")
    assert dict(os.environ) == before


@pytest.mark.usefixtures("unasked")
def test_a_framework_imported_with_other_settings_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "mxnet", ModuleType("mxnet"))
    monkeypatch.delitem(frameworks._imported_with, "mxnet", raising=False)
    monkeypatch.delenv("MXNET_ENGINE_TYPE", raising=False)
    with pytest.raises(
        BackendError,
        match="imported with MXNET_ENGINE_TYPE=unset, and this backend needs NaiveEngine",
    ):
        backends.load("mxnet", engine="sync")


def plug_in(
    folder: Path, distribution: str, entry: str, group: str = "parallel_core.backends"
) -> None:
    """Install a distribution in a folder, with an entry point in a group and no code."""
    metadata = folder / f"{distribution}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n"
    )
    (metadata / "entry_points.txt").write_text(f"[{group}]\n{entry}\n")


Install = Callable[[str, str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Return a function that installs a plug-in in this process."""

    def install(entries: str, code: str) -> None:
        """Install the entry points, and the module `plug_in` with some code."""
        plug_in(tmp_path, "plug-in", entries)
        (tmp_path / "plug_in.py").write_text(code)
        monkeypatch.syspath_prepend(tmp_path)
        # Another test's module has the same name.
        sys.modules.pop("plug_in", None)

    return install


def test_a_plug_in_is_found_by_its_entry_point_and_given_what_it_takes(install: Install) -> None:
    code = "old = lambda *arguments: arguments\nnew = lambda *arguments, variants: variants"
    install("old = plug_in:old\nnew = plug_in:new", code)
    load: Any = backends.load
    assert load("old", 3, "cpu", "sync", 2) == (3, "cpu", "sync", 2)
    assert load("new", variants=["mine"]) == ("mine",)
    with pytest.raises(BackendError, match="the backend 'old' has no variants: leave out 'mine'"):
        load("old", variants=["mine"])


@pytest.mark.parametrize(
    ("name", "attribute", "message"),
    [
        ("numpy", "load", "two backends are called 'numpy'"),
        ("mine", "OFFERED", "plug_in:OFFERED, .* cannot be imported: AttributeError: "),
        ("mine", "offer", "plug_in:offer, .* cannot be called: an Offer's name is in capitals"),
    ],
)
def test_an_entry_point_that_is_wrong_is_said(
    install: Install, name: str, attribute: str, message: str
) -> None:
    install(
        f"{name} = plug_in:{attribute}",
        "from backends.registry import Offer\noffer = Offer('plug_in:load')",
    )
    with pytest.raises(BackendError, match=message):
        backends.load(name)


def test_a_plug_in_that_cannot_be_imported_does_not_concern_other_backends(
    install: Install,
) -> None:
    install("mine = plug_in:OFFER", "import no_such_module")
    assert "mine" not in offered("profiler")
    assert title("mine") == "mine"
    assert "mine" in backends.names()


def test_a_path_that_a_variable_cannot_hold_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a:b.py"
    path.touch()
    with pytest.raises(BackendError, match="':' in its path"):
        named(f"{path}:Net")
    monkeypatch.setenv(FILES, "b.py")
    with pytest.raises(BackendError, match=r"'b\.py', which is not Class=PATH\.py"):
        backends.names()


def test_a_file_may_import_what_lies_beside_it_and_may_not_exit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv(FILES, "")
    (tmp_path / "beside_the_backend.py").write_text(
        "from backends.numpy.backend import NumPyBackend\n"
    )
    path = tmp_path / "mine.py"
    path.write_text("from beside_the_backend import NumPyBackend as Mine\n")
    assert backends.load(named(f"{path}:Mine"), 2).name == "numpy"
    path = tmp_path / "exits.py"
    path.write_text("import sys\nsys.exit()\n")
    with pytest.raises(BackendError, match="cannot be run: SystemExit"):
        backends.load(named(f"{path}:Exits"), 2)


def test_a_plug_in_written_against_the_protocol_runs_an_experiment(
    install: Install, program: RunProgram
) -> None:
    install("mine = plug_in:MineBackend", PLUG_IN.read_text())
    assert len(backends.load("mine", 3).devices) == 3
    command = "run parallel --backend mine --size 100 --rounds 2 --json -"
    completed = program(*command.split())
    result = json.loads(completed.stdout)
    assert result["backend"]["name"] == "mine"
    assert result["backend"]["devices"] == ["cpu:1", "cpu:2"]
    assert result["metrics"]["parallel_speedup"] > 0


VARIANTS_OF_MINE = """
from backends.registry import Offer
from backends.registry.variants import COPY_ON_COMPUTE_QUEUE, COPY_ON_OWN_QUEUE, Variant
OFFER = Offer("plug_in:MineBackend", variants="plug_in:VARIANTS")
VARIANTS = (
    Variant("lazy-off", "laziness", "It computes at once.", default=True),
    Variant("lazy-on", "laziness", "It computes at last.", elsewhere="only mine is lazy"),
    COPY_ON_OWN_QUEUE,
    COPY_ON_COMPUTE_QUEUE,
)
"""


@pytest.fixture
def mine_with_variants(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the backend `mine`, with variants of its own."""
    # A process reads declared variants only once.
    monkeypatch.setattr(variants, "_declared", cache(variants._declared.__wrapped__))
    install("mine = plug_in:OFFER", VARIANTS_OF_MINE)


@pytest.mark.usefixtures("mine_with_variants")
def test_variants_of_a_plug_in_are_chosen_and_exclude_each_other() -> None:
    # What is a default is left out.
    assert choose_variants("mine", "async", ["lazy-on", "copy-on-own-queue"]) == ("lazy-on",)
    with pytest.raises(BackendError):
        choose_variants("mine", "async", ["lazy-on", "lazy-off"])


@pytest.mark.usefixtures("mine_with_variants")
def test_another_backend_lacks_a_plug_in_s_variants_for_the_reason_that_it_gives() -> None:
    with pytest.raises(
        BackendError,
        match=r"^torch has no variant 'lazy-on', for only mine is lazy .known for torch: copy-on-o",
    ):
        choose_variants("torch", "async", ["lazy-on", "lazy-off"])


@pytest.mark.usefixtures("mine_with_variants")
def test_a_plug_in_s_variants_are_explained(program: RunProgram) -> None:
    assert in_words("copy-on-compute-queue") == ("mine", "mxnet on CPUs", "torch")
    command = "run data-parallel --explain --backend mine --device-kind cpu"
    explained = program(*command.split())
    lines = [line.strip() for line in explained.stdout.splitlines()]
    assert "lazy-on (mine)" in lines


def threads_of(name: str) -> set[int]:
    """Return the numbers of threads with which a framework computes on the calling thread."""
    if name == "torch":
        import torch

        return {torch.get_num_threads()}
    return {library.num_threads for library in blas_libraries(name)}


@pytest.mark.parametrize(
    ("name", "engine"), [("numpy", "sync"), ("torch", "sync"), ("torch", "async")]
)
def test_a_synchronous_backend_says_how_many_threads_a_later_load_has_left_it(
    require: Require, name: str, engine: str
) -> None:
    require(name)
    first = backends.load(name, 1, "cpu", "sync", 2)
    assert threads_of(name) == {2}
    assert first.threads_per_device == 2
    second = backends.load(name, 1, "cpu", engine, 1)
    assert threads_of(name) == {1}
    assert first.threads_per_device == 1
    assert second.threads_per_device == 1


def test_readers_know_each_framework_by_its_own_name() -> None:
    titles = {"jax": "JAX", "mxnet": "MXNet", "numpy": "NumPy", "torch": "PyTorch"}
    assert set(titles) <= set(backends.names())
    for name, expected_title in titles.items():
        assert title(name) == expected_title
