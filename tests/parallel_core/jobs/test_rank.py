"""What ranks have beside their training: shares of a host's GPUs, progress that is told, and the
same data in all.
"""

import os

import numpy as np
import pytest

import backends
from backends.process_groups import DisagreementError, Group, GroupedBackend
from backends.process_groups.rendezvous import Rendezvous
from parallel_core.jobs.rank import share_gpus
from parallel_core.jobs.shared import agree_on_data, watched_training
from tests.backends.process_groups.threads import together
from tests.parallel_core.experiments.small import made_up


@pytest.mark.parametrize(
    ("given", "devices", "shares"),
    [
        (None, 1, ["0", "1", "2"]),
        (None, 2, ["0,1", "2,3", "4,5"]),
        ("7,5,3", 1, ["7", "5", "3"]),
        # Too few for all: a rank without a GPU finds none, and the ranks disagree on the kind of
        # device.
        ("4", 1, ["4", "", ""]),
        ("", 1, ["", "", ""]),
        # One that is alone on its host sees all.
        (None, 1, [None]),
    ],
)
def test_each_rank_sees_its_share(
    given: str | None, devices: int, shares: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for rank, share in enumerate(shares):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given or "")
        if given is None:
            monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
        share_gpus(
            Rendezvous(rank, len(shares), rank, len(shares), "127.0.0.1", 29500, 30.0), devices
        )
        assert os.environ.get("CUDA_VISIBLE_DEVICES") == share


def test_the_ranks_data_are_compared_by_number_and_content() -> None:
    def program(group: Group) -> str:
        data = made_up(train=100 if group.rank else 200)
        with pytest.raises(DisagreementError) as raised:
            agree_on_data(group, data)
        return str(raised.value)

    for message in together(2, program):
        assert "the number of training images (200 on rank 0; 100 on rank 1)" in message
        assert "the checksum of the training images" in message
        assert "test images" not in message


def test_every_batch_is_progress_and_an_exchange_keeps_its_number() -> None:
    """A batch without an exchange is progress of a rank, too."""

    def program(group: Group) -> list[int]:
        told: list[int] = []
        backend = GroupedBackend(backends.load("numpy", 1), group, [1, 1], told.append)
        with watched_training(backend, None, 1, 8) as progress:
            progress.on_batch(1, 4)
            for _ in range(2):
                backend.allreduce(
                    [backend.asarray(np.ones(2, np.float32), device) for device in backend.devices]
                )
            # As of an evaluation.
            progress.on_batch(1, 0)
        return told

    assert together(2, program) == [[0, 1, 2, 2]] * 2
