"""A batch without an exchange is progress of a rank that no launcher watches."""

import numpy as np

import backends
from backends.process_groups import Group, GroupedBackend
from parallel_core.command_line.run.resources import progress_of
from tests.backends.process_groups.threads import together


def test_every_batch_is_progress_and_an_exchange_keeps_its_number() -> None:
    def program(group: Group) -> list[int]:
        told: list[int] = []
        backend = GroupedBackend(backends.load("numpy", 1), group, [1, 1], told.append)
        with progress_of(backend, 1, 8) as progress:
            progress.on_batch(1, 4)
            backend.allreduce([backend.asarray(np.ones(2, np.float32), device) for device in backend.devices])
            # As of an evaluation.
            progress.on_batch(1, 0)
        return told

    assert together(2, program) == [[0, 1, 1]] * 2
