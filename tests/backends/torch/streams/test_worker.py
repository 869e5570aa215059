"""Worker streams: items of futures, order, memory and pools; decided by events rather than by the
clock.
"""

import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from backends import BackendError, Device
from backends.torch.streams.future import (
    Announcing,
    Failure,
    Future,
    completed_future,
    device_of,
    resolve,
)
from backends.torch.streams.worker import PooledStream, WorkerStream, submit_collective

FIRST, SECOND = Device("cpu", 1), Device("cpu", 2)
SHORTLY = 0.05
"""Seconds in which what nothing holds back would happen."""


def stream(device: Device = FIRST) -> WorkerStream:
    """Make a stream with one thread, on any core."""
    return WorkerStream(device, f"{device} test", set(), lambda: None)


def pool(device: Device = FIRST) -> PooledStream:
    """Make a stream with two threads, on any cores."""
    return PooledStream(device, f"{device} pool", set(), lambda: None, 2)


def test_an_announced_item_is_there_before_the_rest() -> None:
    gate = threading.Event()

    def compute(announce: Callable[[tuple[int, ...], str], None]) -> tuple[str, tuple[str, str]]:
        announce((1, 0), "early")
        gate.wait()
        return "value", ("early", "late")

    future = stream().submit(Announcing(compute))
    reader = stream(SECOND).submit(lambda item: f"{item} and read", future[1][0])
    assert reader.result() == "early and read"
    assert "pending" in repr(future)

    gate.set()
    assert resolve(future[0]) == "value"
    assert resolve(future[1][1]) == "late"
    assert resolve(future[1]) == ("early", "late")
    assert resolve((future[0], (future[1][1],))) == ("value", ("late",))
    with pytest.raises(TypeError, match="not iterable"):
        iter(future)


def test_who_waits_for_an_item_gets_it_or_what_prevented_it() -> None:
    gate = threading.Event()

    def make() -> tuple[str, str]:
        gate.wait()
        return "a", "b"

    def fail() -> None:
        gate.wait()
        raise ZeroDivisionError

    made = stream().submit(make)
    failed = stream().submit(fail)
    reader_of_made = stream(SECOND).submit(lambda item: item, made[1])
    reader_of_failed = stream(SECOND).submit(lambda item: item, failed[1])
    gate.set()
    assert reader_of_made.result() == "b"
    with pytest.raises(Failure, match="ZeroDivisionError"):
        reader_of_failed.result()


def test_thousands_of_items_are_all_delivered() -> None:
    # A wake-up that is lost now and then would hang here.
    producer, consumer = stream(FIRST), stream(SECOND)
    pairs = [producer.submit(lambda number=number: (number, -number)) for number in range(5000)]
    second_items = [consumer.submit(lambda item: item, pair[1]) for pair in pairs]
    for number, second_item in enumerate(second_items):
        assert second_item.result() == -number


def test_the_device_is_that_of_the_first_future_however_deep() -> None:
    first, second = completed_future(FIRST, 1), completed_future(SECOND, 2)
    assert device_of(0.5, (), (3, (second,)), first) == SECOND
    assert device_of(first, second) == FIRST
    with pytest.raises(BackendError, match="array of this backend"):
        device_of(0.5, (1, 2))


def test_a_dropped_result_is_freed_at_once() -> None:
    worker = stream()
    references: list[weakref.ref[set[int]]] = []

    def make() -> set[int]:
        result = {1}
        references.append(weakref.ref(result))
        return result

    worker.submit(make)
    # When a second task is done, the worker has let go of the first one's result.
    worker.submit(lambda: None).result()
    (reference,) = references
    assert reference() is None


def test_a_collective_is_done_when_all_of_its_parts_are() -> None:
    gate, streams = threading.Event(), [stream(FIRST), stream(SECOND)]
    parts_done: list[int] = []

    def add_ten(values: tuple[bytearray, ...], part: int) -> None:
        if part == 1:
            gate.wait()
        parts_done.append(part)
        values[0][part] += 10

    memory = bytearray(2)
    first, second = submit_collective(streams, add_ten, (memory, memory))
    assert "pending" in repr(first)

    gate.set()
    assert first.result() is memory
    assert second.result() is memory
    assert sorted(parts_done) == [0, 1]
    assert list(memory) == [10, 10]


def test_a_part_that_fails_fails_the_collective_on_every_stream() -> None:
    def fail_in_second_part(_: tuple[int, ...], part: int) -> None:
        if part == 1:
            raise ValueError("no part of mine")

    streams = [stream(FIRST), stream(SECOND)]
    for result in submit_collective(streams, fail_in_second_part, (1, 2)):
        with pytest.raises(Failure, match="no part of mine"):
            result.result()


def test_a_worker_that_cannot_be_prepared_fails_its_tasks_and_collectives() -> None:
    def prepare() -> None:
        raise OSError("no such core")

    broken, sound = WorkerStream(FIRST, "broken", set(), prepare), stream(SECOND)
    task = broken.submit(int)
    results_of_collective = submit_collective([sound, broken], lambda *_: None, (1, 2))
    for future in (task, *results_of_collective):
        with pytest.raises(Failure, match="no such core") as caught:
            future.result()
        assert caught.value.device == FIRST
    # Barriers do not wait for what will never be done.
    broken.barrier()()
    sound.barrier()()


def test_tasks_of_a_pool_begin_in_order() -> None:
    worker, gate = pool(), threading.Event()
    numbers_in_order_of_tasks: list[int] = []
    # The first task keeps one of the two threads: the other one runs all tasks behind it.
    blocked = worker.submit(gate.wait)
    futures = [worker.submit(numbers_in_order_of_tasks.append, number) for number in range(100)]
    futures[-1].result()
    assert numbers_in_order_of_tasks == list(range(100))
    gate.set()
    blocked.result()


@pytest.mark.parametrize("consumer", ["the same stream", "another", "another pool"])
@pytest.mark.parametrize("reads_item", [False, True])
def test_a_consumer_comes_after_all_readers_not_the_last_alone(
    consumer: str, reads_item: bool
) -> None:
    worker, gate = pool(), threading.Event()
    streams = {"the same stream": worker, "another": stream(SECOND), "another pool": pool(SECOND)}

    def read_slowly(x: Any) -> list[int]:
        """Wait for the gate, and copy the first of the two lists."""
        gate.wait()
        first_list = x if reads_item else x[0]
        return list(first_list)

    value = worker.submit(lambda: ([1], [2]))
    read = value[0] if reads_item else value
    slow_copy = worker.submit(read_slowly, read)
    # Another thread of the pool reads meanwhile.
    worker.submit(lambda _: None, read).result()
    overwritten = streams[consumer].submit_consuming(lambda x: x[0].append(3), value)
    time.sleep(SHORTLY)
    gate.set()
    assert slow_copy.result() == [1]
    overwritten.result()
    assert resolve(value[0]) == [1, 3]


def test_the_barrier_of_a_pool_waits_for_all_tasks_before_it_and_none_behind() -> None:
    worker, gate, gate_behind = pool(), threading.Event(), threading.Event()
    slow_task = worker.submit(gate.wait)
    worker.submit(lambda: None).result()
    wait_until_done = worker.barrier()
    task_behind = worker.submit(gate_behind.wait)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(wait_until_done)
        time.sleep(SHORTLY)
        assert not waiting.done()
        gate.set()
        waiting.result(timeout=20)
    assert slow_task.result() is True
    assert "pending" in repr(task_behind)
    gate_behind.set()


def test_many_threads_may_submit_to_one_pool() -> None:
    # Tasks that wait for numbers behind them in the queue would hang here.
    worker = pool()

    def append(numbers: list[int], number: int) -> list[int]:
        numbers.append(number)
        return numbers

    def consume_and_read(start: int) -> int:
        """Append the length of a list of one number to the list, 200 times; return its length."""
        value: Future = worker.submit(lambda: [start])
        for _ in range(200):
            length = worker.submit(len, value)
            value = worker.submit_consuming(append, value, length)
        return len(value.result())

    with ThreadPoolExecutor(4) as threads:
        lengths = list(threads.map(consume_and_read, range(4)))
    assert lengths == [201] * 4
