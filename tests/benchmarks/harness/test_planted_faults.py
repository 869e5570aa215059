"""Planted faults: their backends are right but for the fault, and what is counted of them."""

import subprocess
from collections.abc import Sequence
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.harness import planted_faults
from benchmarks.harness.planted_faults import FAULTS, OVER, Planted, counts, judged, plugged_in
from parallel_core.comparison.cells import Cell
from parallel_core.measurement.fresh_process import measure_elsewhere
from tests.parallel_core.comparison.test_account import PARTS, made_of

NAMED = (["operations"], ["operations", "rest"], ["rest", "operations"], [])


@pytest.mark.parametrize("fault", FAULTS)
def test_a_backend_with_a_fault_computes_what_numpy_does(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(OVER, "numpy")
    backend = Planted(fault, 2, "cpu", "sync", 1)
    assert backend.name == fault
    a = np.arange(4, dtype=np.float32).reshape(2, 2)
    for device in backend.devices:
        x = backend.asarray(a, device)
        made = (
            backend.launch(backend.ops.matmul, x, x)
            if fault != "one-queue"
            else backend.ops.matmul(x, x)
        )
        np.testing.assert_array_equal(backend.to_numpy(made), a @ a)
        np.testing.assert_array_equal(backend.to_numpy(backend.copy_to(x, backend.devices[0])), a)


def test_processes_find_the_backends_by_name() -> None:
    with plugged_in("numpy"):
        result = measure_elsewhere(
            "parallel", {"backend": "twice", "engine": "sync", "size": 8, "rounds": 1}
        )
    assert (result.backend["name"], result.problems) == ("twice", ())


def test_the_part_that_grew_is_judged_and_counted() -> None:
    cell = Cell("parallel", "torch", "async")
    plain = made_of(cell, 1.0, PARTS)
    slow = made_of(cell, 1.6, PARTS | {"operations": 1.2}).results
    found = judged("twice", FAULTS["twice"], slow, {"parallel": plain})
    assert found["named"] == ["operations"]
    assert found["longer_seconds"] == pytest.approx(0.6, rel=0.01)
    assert found["seconds"] == pytest.approx(found["planted_seconds"], rel=0.01)
    trials = [{name: {**found, "named": named} for name in FAULTS} for named in NAMED]
    rows = dict(zip(FAULTS, counts({"trials": trials}), strict=True))
    assert [cell.split(" (")[0] for cell in rows["twice"][2:4]] == ["2 of 4", "2 of 4"]
    assert rows["neighbour"][2].startswith("1 of 4")


def test_a_neighbour_ends_also_if_what_it_disturbs_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[bool] = []

    def measured(cells: Sequence[tuple[str, str]]) -> list[None]:
        if len(cells) == 1:
            raise RuntimeError
        return [None] * len(cells)

    monkeypatch.setattr(planted_faults, "measured", measured)
    neighbour = SimpleNamespace(kill=lambda: killed.append(True))
    monkeypatch.setattr(subprocess, "Popen", lambda _: nullcontext(neighbour))
    with pytest.raises(RuntimeError):
        planted_faults.trial("numpy", 1, [*FAULTS])
    assert killed
