"""The report's verbs: the protocol's, in its order, with the code of the classes that ran."""

from pathlib import Path
from typing import Any

import pytest

from backends.protocol import VERBS
from backends.registry import class_of
from parallel_core.report.verbs import _read, source_of_verb, verbs

RAN = (
    ("mxnet", "async", "cpu:1", "cpu:2"),
    ("torch", "async", "cpu:1"),
    ("torch", "sync", "cpu:1"),
    ("torch", "async", "cpu:1", "gpu:0/1"),
    ("torch", "async", "gpu:0"),
    ("numpy", "sync", "cpu:1"),
    ("missing", "sync", "cpu:1"),
)


def test_the_verbs_are_the_protocol_s_with_the_code_of_each_class_that_ran() -> None:
    shown = verbs({"name": name, "engine": engine, "devices": devices} for name, engine, *devices in RAN)
    assert tuple(verb.name for verb in shown) == VERBS
    for verb in shown:
        assert list(verb.code) == [
            "mxnet: MXNetBackend",
            "torch: WorkerThreadsTorch",
            "torch: EagerTorch",
            "torch: CudaThreadsTorch",
            "numpy: NumPyBackend",
        ]
        assert all("<span" in code for code in verb.code.values()), verb.name
        assert verb.contract


@pytest.mark.parametrize(
    ("engine", "kinds", "functions"),
    [
        ("async", ["cpu"], ("allreduce", "submit_collective", "device_of", "sum_own_shard", "_add_terms")),
        ("async", ["gpu"], ("allreduce", "device_of", "add_into", "_add_terms")),
        ("sync", ["cpu"], ("allreduce",)),
    ],
)
def test_functions_of_the_framework_s_folder_stand_below_the_verb_that_calls_them(
    engine: str, kinds: list[Any], functions: tuple[str, ...]
) -> None:
    source = source_of_verb(class_of("torch", engine, kinds), "allreduce")
    places = [source.index(f"def {name}(") for name in functions]
    assert places[0] == 0
    assert all(places[1:])
    assert source.count("def _add_terms(") <= 1


@pytest.mark.parametrize("base", ["dict", "Elsewhere"])
def test_a_class_of_another_package_may_inherit_from_what_is_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, base: str
) -> None:
    own = f"class Mine({base}):\n    def launch(self):\n        return 1\n"
    (tmp_path / "one_more_backend.py").write_text(f"from one_more_package import Elsewhere\n\n{own}")
    (tmp_path / "one_more_package.py").write_text("class Another:\n    def wait(self):\n        return 2\n")
    monkeypatch.syspath_prepend(tmp_path)
    _read.cache_clear()
    launch = "def launch(self):\n    return 1"
    for path, verb, source in (("Mine", "launch", launch), ("make", "launch", launch), ("Mine", "wait", "")):
        assert source_of_verb(f"one_more_backend:{path}", verb) == source
    assert source_of_verb("no_such_package.module:Class", "launch") == ""
    # What all share is shown, too.
    assert source_of_verb(class_of("numpy", "sync", ["cpu"]), "split_and_load").startswith("def split_and_load(")
