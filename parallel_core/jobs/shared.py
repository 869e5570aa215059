"""What the ranks of a job share: data, the checkpoint that rank 0 reads and writes, and the
progress that rank 0 shows.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import final

from backends.process_groups import Group, GroupedBackend, Rendezvous, agree, broadcast
from parallel_core.measurement.request import Files
from parallel_core.run.arguments import ShownTraining, ShowTraining, Supplies, open_checkpoints
from parallel_core.training import checkpoints
from parallel_core.training.checkpoints import Checkpointing
from parallel_core.training.dataset import Dataset
from parallel_core.training.loop import ignore


def supplies_of_rank(backend: GroupedBackend, where: Rendezvous, of_first: Supplies) -> Supplies:
    """Return what a rank supplies programs with: only the first rank tells and shows."""
    group = backend.group
    by_itself = of_first if group.rank == 0 else Supplies()
    return Supplies(
        tell=by_itself.tell,
        show_training=partial(watched_training, backend, by_itself.show_training),
        checkpoints=partial(_checkpoints_of_first, group),
        check_data=partial(agree_on_data, group),
        where=where,
    )


def agree_on_data(group: Group, data: Dataset) -> None:
    """Raise DisagreementError, in every rank, if ranks have different data; paths may differ."""
    description = {
        "the number of training images": len(data.train_labels),
        "the number of test images": len(data.test_labels),
        "the checksum of the training images": f"{data.checksum:08x}",
    }
    agree(group, description)


def _checkpoints_of_first(group: Group, files: Files) -> Checkpointing | None:
    """Read the checkpoint to resume on rank 0, and send it to the others.

    Rank 0 reads and writes for all ranks: the hosts of the others may not see its files.
    """
    read_here = open_checkpoints(files) if group.rank == 0 else None
    # Rank 0 sends its checkpoint and its number of steps; both are empty if it has none.
    own_content = own_every = b""
    if read_here is not None:
        own_every = str(read_here.every or 0).encode()
        if read_here.resumed is not None:
            own_content = checkpoints.to_bytes(read_here.resumed)
    content = broadcast(group, own_content)
    every = broadcast(group, own_every)
    if group.rank == 0 or not every:
        return read_here
    resumed = checkpoints.from_bytes(content, "rank 0") if content else None
    return Checkpointing(keep=None, every=int(every) or None, resumed=resumed)


@contextmanager
def watched_training(
    backend: GroupedBackend, show: ShowTraining | None, epochs: int, images: int
) -> Iterator[ShownTraining]:
    """Tell this rank's watchdog how far a training is, and show it, if the rank does."""
    if show is None:
        yield _WatchedTraining(backend)
        return
    with show(epochs, images) as shown:
        yield _WatchedTraining(backend, shown)


@final
class _WatchedTraining:
    """The progress of a rank, which tells its watchdog of every batch."""

    def __init__(self, backend: GroupedBackend, shown: ShownTraining | None = None) -> None:
        """Take the backend of the rank, and the display of progress if the rank has one."""
        self._backend = backend
        self.go_on_from = shown.go_on_from if shown else ignore
        self.on_plan = shown.on_plan if shown else ignore
        self.on_epoch = shown.on_epoch if shown else ignore
        self.on_training = shown.on_training if shown else ignore
        self._show = shown.on_batch if shown else ignore

    def on_batch(self, epoch: int, images: int) -> None:
        """Tell the watchdog that a batch is done, and advance the display."""
        self._backend.on_exchange(self._backend.exchanges)
        self._show(epoch, images)
