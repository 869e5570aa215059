"""Who overwrites memory comes after those that read it earlier, by whatever name, and waits for
nobody else.
"""

import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from backends.arrays import tree_map
from backends.torch.streams.future import Failure, Future, completed_future
from backends.torch.streams.sharing import check_apart
from backends.torch.streams.worker import WorkerStream, submit_collective
from tests.backends.torch.streams.test_worker import FIRST, SECOND, SHORTLY, pool, stream

torch = pytest.importorskip("torch")


def halves(x: Any) -> Any:
    """Return views of the first two and the last two of four elements."""
    return x.split(2)


def fill(x: Any) -> Any:
    """Overwrite all arrays of a value by sevens."""
    return tree_map(lambda y: y.fill_(7), x)


def reading(gate: threading.Event) -> Callable[[Any], Any]:
    """Make a task that waits for the gate, and then reads a value's elements as a list.

    Of a tuple it reads a list of each array.
    """

    def read(x: Any) -> Any:
        gate.wait(20)
        if isinstance(x, tuple):
            return [item.tolist() for item in x]
        return x.tolist()

    return read


Names = Callable[[WorkerStream, Future], Future]
NAMES: dict[str, Names] = {
    "the array": lambda _, x: x,
    "a view": lambda worker, x: worker.submit(halves, x)[0],
    "a part, counted from the end": lambda worker, x: worker.submit(halves, x)[-2],
    "a tuple of views": lambda worker, x: worker.submit(halves, x),
    "a view of a view": lambda worker, x: worker.submit(
        lambda y: y.view(1, 2), worker.submit(halves, x)[0]
    ),
    "the argument of a task": lambda worker, x: worker.submit(lambda y: y, x),
    "the first of two items": lambda worker, x: worker.submit(lambda y: (y, y), x)[0],
    "the second of two items": lambda worker, x: worker.submit(lambda y: (y, y), x)[1],
    "an item of an array": lambda _, x: x[0],
}
"""Futures of an array of four elements or of its first ones, by how they came from the array's."""


@pytest.mark.parametrize("read_name", NAMES)
@pytest.mark.parametrize("make", [stream, pool])
def test_a_writer_comes_after_earlier_readers_by_any_name(
    gate: threading.Event, read_name: str, make: Callable[[], WorkerStream]
) -> None:
    copies: dict[str, Future] = {}
    overwritten: list[Future] = []
    for consumed_name, consumed_by_name in NAMES.items():
        owner, reader = make(), stream(SECOND)
        x = owner.submit(torch.zeros, 4)
        consumed = consumed_by_name(owner, x)
        read = NAMES[read_name](owner, x)
        copies[consumed_name] = reader.submit(reading(gate), read)
        overwritten.append(owner.submit_consuming(fill, consumed))

    time.sleep(SHORTLY)
    gate.set()
    for future in overwritten:
        future.result()

    for consumed_name, copy in copies.items():
        numbers = torch.tensor(copy.result())
        assert 7 not in numbers, f"{consumed_name} was overwritten before it was read"


def test_a_writer_does_not_wait_for_readers_of_other_parts(gate: threading.Event) -> None:
    owner, reader = stream(), stream(SECOND)
    parts = owner.submit(halves, owner.submit(torch.zeros, 4))
    view_of_last = owner.submit(lambda x: x.view(1, 2), parts[1])
    # All three names are of the last half.
    copy = reader.submit(reading(gate), parts[1])
    copy_from_end = reader.submit(reading(gate), parts[-1])
    copy_of_view = reader.submit(reading(gate), view_of_last)

    overwritten = owner.submit_consuming(fill, parts[0])

    assert overwritten.result().tolist() == [7, 7]
    # The write was done while the readers still waited at the gate.
    assert not gate.is_set()
    gate.set()
    assert copy.result() == [0, 0]
    assert copy_from_end.result() == [0, 0]
    assert copy_of_view.result() == [[0, 0]]


def test_a_collective_comes_after_readers_by_other_names(gate: threading.Event) -> None:
    owners, reader = [stream(FIRST), stream(SECOND)], stream()
    arrays, copies = [], []
    for owner in owners:
        x = owner.submit(torch.zeros, 4)
        square = owner.submit(lambda y: y.view(2, 2), x)
        arrays.append(x)
        copies.append(reader.submit(reading(gate), square))

    def fill_part(values: tuple[Any, ...], part: int) -> Any:
        return fill(values[part])

    filled = submit_collective(owners, fill_part, tuple(arrays))
    time.sleep(SHORTLY)
    gate.set()
    for future in filled:
        assert future.result().tolist() == [7, 7, 7, 7]
    for copy in copies:
        assert copy.result() == [[0, 0], [0, 0]]


def test_names_keep_no_value_alive() -> None:
    owner = stream()
    x = owner.submit(torch.zeros, 4)
    views = owner.submit(halves, x)
    copy = owner.submit(lambda y: y.clone(), views[0])
    copy.result()
    x_or_none, views_or_none = weakref.ref(x), weakref.ref(views)
    del x, views
    # The stream lets go of its last task's arguments when it goes on.
    owner.barrier()()
    assert x_or_none() is None
    assert views_or_none() is None


def test_done_readers_are_forgotten() -> None:
    owner, other = stream(), pool()
    x = owner.submit(torch.zeros, 4)
    # A thousand tasks on each stream read the array, fifty at a time.
    for _ in range(20):
        for _ in range(50):
            owner.submit(torch.numel, x)
            other.submit(torch.numel, x)
        owner.barrier()()
        other.barrier()()
    assert len(x.readers) < 300


def test_of_one_queue_s_readers_the_last_counts_alone(gate: threading.Event) -> None:
    owner, reader = stream(), stream(SECOND)
    x = owner.submit(torch.zeros, 4)
    parts = owner.submit(halves, owner.submit(torch.zeros, 4))
    contents_read: list[list[float]] = []

    def note(y: Any) -> None:
        contents_read.append(y.tolist())

    # No reader begins before the gate is set.
    reader.submit(gate.wait)
    for _ in range(10):
        reader.submit(note, x)
        reader.submit(torch.numel, parts[0])
    reader.submit(torch.numel, parts[1])

    assert len(x.readers) == 1
    paths_read = [path for _, path, _ in parts.readers]
    assert paths_read == [(0,), (1,)]
    # Whoever overwrites the array still comes after all ten that note it.
    overwritten = owner.submit_consuming(fill, x)
    gate.set()
    overwritten.result()
    assert contents_read == [[0, 0, 0, 0]] * 10


def test_of_two_threads_readers_each_one_s_last_counts() -> None:
    # Their tasks may stand in the queue in another order than they were counted in.
    reader, x = stream(), stream(SECOND).submit(torch.zeros, 4)

    def read_twice() -> None:
        reader.submit(torch.numel, x)
        reader.submit(torch.numel, x)

    read_twice()
    other_thread = threading.Thread(target=read_twice)
    other_thread.start()
    other_thread.join()
    assert len(x.readers) == 2


def test_an_index_out_of_range_holds_no_writer_back() -> None:
    owner, reader = stream(), stream(SECOND)
    parts = owner.submit(halves, owner.submit(torch.zeros, 4))
    missing = reader.submit(reading(threading.Event()), parts[5])
    assert owner.submit_consuming(fill, parts[0]).result().tolist() == [7, 7]
    with pytest.raises(Failure, match="IndexError"):
        missing.result()


def test_only_arrays_that_overlap_are_refused() -> None:
    x = torch.zeros(4, 6)
    empty, column = x[:0], x.T[2]
    check_apart((x[0], (x[1], x[3]), empty, empty))
    # From the column's first element to its last one, all is its own.
    check_apart((x[0, :2], column, x[3, 3:]))
    for pair in ((x, x), (x, x[2]), (x[3], x), (x[0, 2:3], column), (column, x[3, 2:3])):
        with pytest.raises(ValueError, match="share memory"):
            check_apart(pair)


def test_a_value_may_have_any_number_of_names() -> None:
    owner = stream()
    x = completed_future(FIRST, torch.zeros(4))
    names = [x]
    for _ in range(300):
        same_array = owner.submit(lambda y: y, names[-1])
        names.append(same_array)
    owner.barrier()()
    assert x.sharing is not None
    assert len(x.sharing) == 301
    overwritten = owner.submit_consuming(fill, names[150])
    assert overwritten.result().tolist() == [7, 7, 7, 7]
