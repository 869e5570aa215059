"""Results count as copied beside computation the more, the more of their copies can lie there."""

import threading

import pytest

from backends import Device
from parallel_core.experiments import EXPERIMENTS
from parallel_core.labs import Task
from tests.parallel_core.labs import solution

RESULTS, COPIES = 9, 10


class TurnsForCopies(solution.MyEngine):
    """An engine on which a percentage of each result's copies may run beside a multiplication.

    The others take turns with multiplications.
    """

    beside_percent = 100

    def start(self) -> None:
        self.turn = threading.Lock()
        self.copies = 0
        super().start()

    def submit(self, task: Task) -> None:
        in_turn = task.kind != "copy"
        if task.kind == "copy":
            in_turn = self.copies % COPIES >= self.beside_percent * COPIES / 100
            self.copies += 1
        if in_turn:
            compute = task.compute

            def compute_in_turn() -> object:
                with self.turn:
                    return compute()

            task.compute = compute_in_turn  # type: ignore[method-assign]
        super().submit(task)


@pytest.mark.parametrize(("percent", "least", "most"), [(0, 0, 0), (10, 0, 4), (100, 6, RESULTS)])
def test_a_tenth_of_the_copies_is_told_from_all(percent: int, least: int, most: int) -> None:
    devices: list[Device | str] = ["cpu:1", "cpu:2"]
    backend = TurnsForCopies(len(devices), "cpu", None, 1)
    backend.beside_percent = percent
    experiment = EXPERIMENTS["overlap"]
    result = experiment.run(
        backend, rounds=1, budget=600.0, size=400, products=RESULTS + 1, copies=COPIES
    )
    counted = result.counts[experiment.counts[0].name]
    assert counted.of == RESULTS
    assert least <= counted.count <= most
