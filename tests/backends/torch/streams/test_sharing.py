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
from backends.torch.streams.sharing import check_apart, extent
from backends.torch.streams.worker import WorkerStream, submit_collective
from tests.backends.torch.streams.test_worker import FIRST, SECOND, SHORTLY, pool, stream

torch = pytest.importorskip("torch")


def halves(x: Any) -> Any:
    return x.split(2)


def fill(x: Any) -> Any:
    return tree_map(lambda y: y.fill_(7), x)


def reading(gate: threading.Event) -> Callable[[Any], Any]:
    def read(x: Any) -> Any:
        gate.wait(20)
        return [item.tolist() for item in x] if isinstance(x, tuple) else x.tolist()

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
    "an item of an array": lambda _, x: x[0],
}


@pytest.mark.parametrize("read", NAMES)
@pytest.mark.parametrize("make", [stream, pool])
def test_a_writer_comes_after_earlier_readers_by_any_name(
    gate: threading.Event, read: str, make: Callable[[], WorkerStream]
) -> None:
    copies, written = [], []
    for consumed in NAMES.values():
        owner, reader = make(), stream(SECOND)
        x = owner.submit(torch.zeros, 4)
        mine = consumed(owner, x)
        copies.append(reader.submit(reading(gate), NAMES[read](owner, x)))
        written.append(owner.submit_consuming(fill, mine))
    time.sleep(SHORTLY)
    gate.set()
    for overwritten in written:
        overwritten.result()
    assert [
        name for name, copy in zip(NAMES, copies, strict=True) if 7 in torch.tensor(copy.result())
    ] == []


def test_two_items_of_one_array_are_one_memory(gate: threading.Event) -> None:
    owner, reader = stream(), stream(SECOND)
    pair = owner.submit(lambda: (torch.zeros(2),) * 2)
    copy = reader.submit(reading(gate), pair[0])
    written = owner.submit_consuming(fill, pair[1])
    time.sleep(SHORTLY)
    gate.set()
    written.result()
    assert copy.result() == [0, 0]


def test_a_writer_does_not_wait_for_readers_of_other_parts(gate: threading.Event) -> None:
    owner, reader = stream(), stream(SECOND)
    parts = owner.submit(halves, owner.submit(torch.zeros, 4))
    other = owner.submit(lambda x: x.view(1, 2), parts[1])
    copies = [reader.submit(reading(gate), x) for x in (parts[1], parts[-1], other)]
    assert owner.submit_consuming(fill, parts[0]).result().tolist() == [7, 7]
    assert not gate.is_set()
    gate.set()
    assert [copy.result() for copy in copies] == [[0, 0], [0, 0], [[0, 0]]]


def test_a_collective_comes_after_readers_by_other_names(gate: threading.Event) -> None:
    owners, reader = [stream(FIRST), stream(SECOND)], stream()
    xs = [owner.submit(torch.zeros, 4) for owner in owners]
    views = [owner.submit(lambda y: y.view(2, 2), x) for owner, x in zip(owners, xs, strict=True)]
    copies = [reader.submit(reading(gate), view) for view in views]
    sums = submit_collective(owners, lambda values, part: fill(values[part]), tuple(xs))
    time.sleep(SHORTLY)
    gate.set()
    assert [total.result().tolist() for total in sums] == [[7] * 4] * 2
    assert [copy.result() for copy in copies] == [[[0, 0], [0, 0]]] * 2


def test_names_keep_no_value_alive() -> None:
    owner = stream()
    x = owner.submit(torch.zeros, 4)
    views = owner.submit(halves, x)
    part = owner.submit(lambda y: y.clone(), views[0])
    part.result()
    dropped = [weakref.ref(x), weakref.ref(views)]
    del x, views
    owner.barrier()()
    assert [name() for name in dropped] == [None, None]


def test_done_readers_are_forgotten() -> None:
    owner, other = stream(), pool()
    x = owner.submit(torch.zeros, 4)
    for _ in range(20):
        for _ in range(50):
            owner.submit(torch.numel, x)
            other.submit(torch.numel, x)
        owner.barrier()()
        other.barrier()()
    assert len(x.readers) < 300


def test_of_one_queue_s_readers_the_last_counts_alone(gate: threading.Event) -> None:
    owner, reader, seen = stream(), stream(SECOND), []
    x = owner.submit(torch.zeros, 4)
    parts = owner.submit(halves, owner.submit(torch.zeros, 4))
    reader.submit(gate.wait)
    for _ in range(10):
        reader.submit(lambda y: seen.append(y.tolist()), x)
        reader.submit(torch.numel, parts[0])
    reader.submit(torch.numel, parts[1])
    assert len(x.readers) == 1
    assert [path for _, path, *_ in parts.readers] == [(0,), (1,)]
    overwritten = owner.submit_consuming(fill, x)
    gate.set()
    overwritten.result()
    assert seen == [[0] * 4] * 10


def test_of_two_threads_readers_each_one_s_last_counts() -> None:
    # Their tasks may stand in the queue in another order than they were counted in.
    reader, x = stream(), stream(SECOND).submit(torch.zeros, 4)
    for _ in range(2):
        reader.submit(torch.numel, x)
    other = threading.Thread(target=lambda: [reader.submit(torch.numel, x) for _ in range(2)])
    other.start()
    other.join()
    assert len(x.readers) == 2


def test_an_index_out_of_range_holds_no_writer_back() -> None:
    owner, reader = stream(), stream(SECOND)
    parts = owner.submit(halves, owner.submit(torch.zeros, 4))
    missing = reader.submit(reading(threading.Event()), parts[5])
    assert owner.submit_consuming(fill, parts[0]).result().tolist() == [7, 7]
    with pytest.raises(Failure, match="IndexError"):
        missing.result()


def test_extents_are_of_what_is_there() -> None:
    x = torch.zeros(4, 6)
    start = x.data_ptr()
    assert extent(x) == (start, start + 96)
    assert extent(x[1]) == (start + 24, start + 48)
    assert extent(x.T[2]) == (start + 8, start + 8 + 3 * 24 + 4)
    assert extent(x[:0]) == (0, 0)
    check_apart((x[0], (x[1], x[3]), x[:0], x[:0]))
    for pair in ((x, x), (x, x[2]), (x[3], x), (x[0], x.T[0])):
        with pytest.raises(ValueError, match="share memory"):
            check_apart(pair)


def test_a_value_may_have_any_number_of_names() -> None:
    owner = stream()
    x = completed_future(FIRST, torch.zeros(4))
    names = [x]
    for _ in range(300):
        names.append(owner.submit(lambda y: y, names[-1]))
    owner.barrier()()
    assert x.sharing is not None
    assert len(x.sharing) == 301
    assert owner.submit_consuming(fill, names[150]).result().tolist() == [7] * 4
