"""All ranks train on the same data: one that has others, or fewer, would send garbage, or leave the rest waiting."""

import zlib

import numpy as np

from backends.groups import Group, agree
from parallel_core.dataset import Dataset

__all__ = ["agree_on_data"]


def agree_on_data(group: Group, data: Dataset) -> None:
    """Compare all ranks' data by their numbers and labels; raises DisagreementError, in every rank, where they differ.

    Where the data lie may differ from host to host.
    """
    said: dict[str, object] = {}
    for kind, labels in (("training", data.train_labels), ("test", data.test_labels)):
        said[f"{kind} images"] = len(labels)
        said[f"the checksum of the {kind} labels"] = f"{zlib.crc32(np.ascontiguousarray(labels)):08x}"
    agree(group, said)
