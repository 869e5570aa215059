"""Worker streams: order, readiness and memory, decided by events rather than by the clock."""

import threading
import time
import weakref

import pytest

from backends.torch.streams.future import Failure
from backends.torch.streams.worker import submit_collective
from tests.backends.torch.streams.made import FIRST, SECOND, stream


def test_a_dropped_result_is_freed_at_once() -> None:
    class Array:
        pass

    worker = stream()
    made: list[weakref.ref[Array]] = []

    def make() -> Array:
        array = Array()
        made.append(weakref.ref(array))
        return array

    worker.submit(make)
    worker.submit(lambda: None).result()
    assert made[0]() is None


def test_reading_one_item_does_not_hold_back_who_consumes_another() -> None:
    gate = threading.Event()
    owner, reader = stream(FIRST), stream(SECOND)
    pair = owner.submit(lambda: ([1], [2]))
    read = reader.submit(lambda cell: gate.wait() and list(cell), pair[0])
    other = owner.submit_consuming(lambda cell: cell.append(3) or cell, pair[1])
    assert other.result() == [2, 3]
    same = owner.submit_consuming(lambda cell: cell.append(4) or cell, pair[0])
    gate.set()
    assert read.result() == [1]
    assert same.result() == [1, 4]


@pytest.mark.parametrize("reads_item", [True, False])
def test_a_whole_and_its_items_are_not_consumed_while_the_other_is_read(reads_item: bool) -> None:
    gate = threading.Event()
    owner, reader = stream(FIRST), stream(SECOND)
    pair = owner.submit(lambda: ([1], [2]))
    read, consumed = (pair[0], pair) if reads_item else (pair, pair[0])
    gated = reader.submit(gate.wait)
    copy = reader.submit(lambda cell: list(cell if reads_item else cell[0]), read)
    overwritten = owner.submit_consuming(lambda cell: (cell[0] if reads_item else cell).append(3), consumed)
    # Long enough for the owner to overwrite what the reader has yet to see, if nothing held it back.
    time.sleep(0.1)
    gate.set()
    overwritten.result()
    assert gated.result() is True
    assert copy.result() == [1]


def test_a_collective_is_done_when_all_of_its_parts_are() -> None:
    gate, streams = threading.Event(), [stream(FIRST), stream(SECOND)]
    taken: list[int] = []

    def take(values: tuple[bytearray, ...], part: int) -> None:
        if part == 1:
            gate.wait()
        taken.append(part)
        values[0][part] += 10

    memory = bytearray(2)
    first, second = submit_collective(streams, take, (memory, memory))
    assert "pending" in repr(first)
    gate.set()
    assert first.result() is second.result() is memory
    assert (sorted(taken), list(memory)) == ([0, 1], [10, 10])


def test_a_part_that_fails_fails_the_collective_on_every_stream() -> None:
    def take(_: tuple[int, ...], part: int) -> None:
        if part == 1:
            raise ValueError("no part of mine")

    for result in submit_collective([stream(FIRST), stream(SECOND)], take, (1, 2)):
        with pytest.raises(Failure, match="no part of mine"):
            result.result()
