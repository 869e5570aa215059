"""Streams of several workers keep what the order of a queue no longer gives, decided by events."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from backends.torch.streams.future import Future, resolve
from tests.backends.torch.streams.made import SECOND, SHORTLY, pool, stream


def test_tasks_begin_in_order() -> None:
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
    value = worker.submit(lambda: ([1], [2]))
    read = value[0] if item else value
    slow = worker.submit(lambda x: gate.wait() and list(x if item else x[0]), read)
    worker.submit(lambda _: None, read).result()
    writer = {"the same stream": worker, "another": stream(SECOND), "another pool": pool(SECOND)}[consumer]
    overwritten = writer.submit_consuming(lambda x: x[0].append(3), value)
    time.sleep(SHORTLY)
    gate.set()
    assert slow.result() == [1]
    overwritten.result()
    assert resolve(value[0]) == [1, 3]


def test_the_barrier_waits_for_all_tasks_before_it_and_none_behind() -> None:
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
