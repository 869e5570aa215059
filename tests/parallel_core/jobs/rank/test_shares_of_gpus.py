"""Ranks on one host see GPUs of their own: a framework would otherwise give all of them the first one."""

import os

import pytest

from backends.process_groups import Rendezvous
from parallel_core.jobs.rank import share_gpus


def place(local_rank: int, local_size: int) -> Rendezvous:
    return Rendezvous(local_rank, local_size, local_rank, local_size, "127.0.0.1", 29500, 30.0)


@pytest.mark.parametrize(
    ("given", "devices", "shares"),
    [
        (None, 1, ["0", "1", "2"]),
        (None, 2, ["0,1", "2,3", "4,5"]),
        ("7,5,3", 1, ["7", "5", "3"]),
        # Too few for all: who gets none finds none, and the ranks disagree on the kind of device.
        ("4", 1, ["4", "", ""]),
        ("", 1, ["", "", ""]),
    ],
)
def test_each_rank_sees_its_share(
    given: str | None, devices: int, shares: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for rank, share in enumerate(shares):
        if given is None:
            monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        else:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
        share_gpus(place(rank, len(shares)), devices)
        assert os.environ["CUDA_VISIBLE_DEVICES"] == share


def test_a_rank_that_is_alone_on_its_host_sees_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    share_gpus(place(0, 1), 1)
    assert "CUDA_VISIBLE_DEVICES" not in os.environ
