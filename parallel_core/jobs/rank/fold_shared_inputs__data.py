"""All ranks train on the same data: one that has others sends garbage, one that has fewer leaves the rest waiting."""

from backends.process_groups import Group, agree
from parallel_core.training.dataset import Dataset

__all__ = ["agree_on_data"]


def agree_on_data(group: Group, data: Dataset) -> None:
    """Compare all ranks' data by number and content; raises DisagreementError, in every rank, where they differ.

    Where the data lie may differ from host to host.
    """
    said = {
        "the number of training images": len(data.train_labels),
        "the number of test images": len(data.test_labels),
        "the checksum of the training images": f"{data.checksum:08x}",
    }
    agree(group, said)
