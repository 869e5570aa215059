"""Data that differ between ranks are refused in every rank."""

import pytest

from backends.process_groups import DisagreementError, Group
from parallel_core.command_line.run.resources import agree_on_data
from parallel_core.training.dataset import synthetic
from tests.backends.process_groups.threads import together


def test_the_ranks_data_are_compared_by_number_and_content() -> None:
    def program(group: Group) -> str:
        data = synthetic("a test needs no more", train=100 if group.rank else 200, test=50)
        with pytest.raises(DisagreementError) as raised:
            agree_on_data(group, data)
        return str(raised.value)

    for message in together(2, program):
        assert "the number of training images (200 on rank 0; 100 on rank 1)" in message
        assert "the checksum of the training images" in message
        assert "test images" not in message
