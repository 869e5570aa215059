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
    return WorkerStream(device, f"{device} test", set(), lambda: None)


def pool(device: Device = FIRST) -> PooledStream:
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
    assert resolve((future[0], future[1][1], future[1])) == ("value", "late", ("early", "late"))
    with pytest.raises(TypeError, match="not iterable"):
        iter(future)


def test_who_waits_for_an_item_gets_it_or_what_prevented_it() -> None:
    gate = threading.Event()
    futures = [
        stream().submit(fn)
        for fn in (lambda: gate.wait() and ("a", "b"), lambda: gate.wait() and 1 // 0)
    ]
    made, failed = (stream(SECOND).submit(lambda item: item, future[1]) for future in futures)
    gate.set()
    assert made.result() == "b"
    with pytest.raises(Failure, match="ZeroDivisionError"):
        failed.result()


def test_thousands_of_items_are_all_delivered() -> None:
    # A wake-up that is lost now and then would hang here.
    producer, consumer = stream(FIRST), stream(SECOND)
    pairs = [producer.submit(lambda number=number: (number, -number)) for number in range(5000)]
    items = [consumer.submit(lambda item: item, pair[1]) for pair in pairs]
    assert [item.result() for item in items] == [-number for number in range(5000)]


def test_the_device_is_that_of_the_first_future_however_deep() -> None:
    first, second = completed_future(FIRST, 1), completed_future(SECOND, 2)
    assert device_of(0.5, (), (3, (second,)), first) == SECOND
    assert device_of(first, second) == FIRST
    with pytest.raises(BackendError, match="array of this backend"):
        device_of(0.5, (1, 2))


def test_a_dropped_result_is_freed_at_once() -> None:
    worker = stream()
    made: list[weakref.ref[set[int]]] = []

    def make() -> set[int]:
        made.append(weakref.ref(array := {1}))
        return array

    worker.submit(make)
    worker.submit(lambda: None).result()
    assert made[0]() is None


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


def test_a_worker_that_cannot_be_prepared_fails_its_tasks_and_collectives() -> None:
    def prepare() -> None:
        raise OSError("no such core")

    broken, sound = WorkerStream(FIRST, "broken", set(), prepare), stream(SECOND)
    futures = [broken.submit(int), *submit_collective([sound, broken], lambda *_: None, (1, 2))]
    for future in futures:
        with pytest.raises(Failure, match="no such core") as caught:
            future.result()
        assert caught.value.device == FIRST
    broken.barrier()()
    sound.barrier()()


def test_tasks_of_a_pool_begin_in_order() -> None:
    worker, gate, ran = pool(), threading.Event(), []
    blocked = worker.submit(gate.wait)
    futures = [worker.submit(ran.append, number) for number in range(100)]
    futures[-1].result()
    assert ran == list(range(100))
    gate.set()
    blocked.result()


@pytest.mark.parametrize("consumer", ["the same stream", "another", "another pool"])
@pytest.mark.parametrize("item", [False, True])
def test_a_consumer_comes_after_all_readers_not_the_last_alone(consumer: str, item: bool) -> None:
    worker, gate = pool(), threading.Event()
    streams = {"the same stream": worker, "another": stream(SECOND), "another pool": pool(SECOND)}

    def read_slowly(x: Any) -> list[int]:
        gate.wait()
        return list(x) if item else list(x[0])

    value = worker.submit(lambda: ([1], [2]))
    read = value[0] if item else value
    slow = worker.submit(read_slowly, read)
    # Another thread of the pool reads meanwhile.
    worker.submit(lambda _: None, read).result()
    overwritten = streams[consumer].submit_consuming(lambda x: x[0].append(3), value)
    time.sleep(SHORTLY)
    gate.set()
    assert slow.result() == [1]
    overwritten.result()
    assert resolve(value[0]) == [1, 3]


def test_the_barrier_of_a_pool_waits_for_all_tasks_before_it_and_none_behind() -> None:
    worker, gate, later = pool(), threading.Event(), threading.Event()
    slow = worker.submit(gate.wait)
    worker.submit(lambda: None).result()
    wait_until_done = worker.barrier()
    blocked = worker.submit(later.wait)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(wait_until_done)
        time.sleep(SHORTLY)
        assert not waiting.done()
        gate.set()
        waiting.result(timeout=20)
    assert slow.result() is True
    assert "pending" in repr(blocked)
    later.set()


def test_many_threads_may_submit_to_one_pool() -> None:
    # Tasks that wait for numbers behind them in the queue would hang here.
    worker = pool()

    def consume_and_read(start: int) -> int:
        value: Future = worker.submit(lambda: [start])
        for _ in range(200):
            read = worker.submit(len, value)
            value = worker.submit_consuming(lambda cell, n: [cell.append(n), cell][1], value, read)
        return len(value.result())

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(consume_and_read, range(4))) == [201] * 4
