"""Streams of several workers keep what the order of a queue no longer gives, decided by events."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.devices import Device
from backends.torch.streams.future import Future, resolve
from backends.torch.streams.worker import submit_collective
from tests.backends.torch.streams.made import FIRST, SECOND, SHORTLY, pool, stream


def test_as_many_tasks_run_at_once_as_there_are_workers() -> None:
    worker, meeting = pool(workers=3), threading.Barrier(3)
    for met in [worker.submit(meeting.wait, 20) for _ in range(3)]:
        met.result()


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


def test_a_collective_comes_after_all_readers_in_a_pool() -> None:
    worker, copies, gate = pool(), [stream(FIRST), stream(SECOND)], threading.Event()
    values = (worker.submit(lambda: [1]), worker.submit(lambda: [1]))
    slow = worker.submit(lambda cell: gate.wait() and list(cell), values[0])
    worker.submit(lambda cell: None, values[0]).result()
    sums = submit_collective(copies, lambda cells, part: cells[part].append(2), values)
    time.sleep(SHORTLY)
    gate.set()
    assert slow.result() == [1]
    assert [total.result() for total in sums] == [[1, 2], [1, 2]]


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


def test_dropping_a_pool_ends_its_threads() -> None:
    worker = pool(Device("cpu", 99))
    worker.submit(lambda: None).result()
    threads = [thread for thread in threading.enumerate() if thread.name == "cpu:99 pool"]
    assert len(threads) == 2
    del worker
    for thread in threads:
        thread.join(timeout=10)
        assert not thread.is_alive()


STEPS = st.tuples(
    st.sampled_from(["make", "read", "consume"]),
    st.integers(0, 2),  # the stream
    st.integers(0, 99),  # the value, of those there are
    st.sampled_from([0, 0, 0, 0.0005, 0.002]),  # how long it takes
)


@given(st.lists(STEPS, max_size=60))
def test_random_programs_give_what_they_would_one_after_the_other(steps: list[tuple[str, int, int, float]]) -> None:
    streams: list[Any] = [pool(FIRST), pool(SECOND, workers=3), stream(SECOND)]
    expected: list[list[int]] = []
    cells: list[Future] = []
    reads: list[tuple[Future, list[int]]] = []
    for number, (what, place, chosen, seconds) in enumerate(steps):
        if what == "make" or not cells:
            cells.append(streams[place].submit(after(seconds, lambda n: [n]), number))
            expected.append([number])
            continue
        index = chosen % len(cells)
        if what == "read":
            reads.append((streams[place].submit(after(seconds, list), cells[index]), list(expected[index])))
        else:
            cells[index] = streams[place].submit_consuming(after(seconds, append), cells[index], number)
            expected[index].append(number)
    for wait_until_done in [each.barrier() for each in streams]:
        wait_until_done()
    assert not any("pending" in repr(future) for future in (*cells, *(read for read, _ in reads)))
    assert [read.result() for read, _ in reads] == [wanted for _, wanted in reads]
    assert [cell.result() for cell in cells] == expected


def after(seconds: float, fn: Callable[..., Any]) -> Callable[..., Any]:
    def slowly(*args: Any) -> Any:
        if seconds:
            time.sleep(seconds)
        return fn(*args)

    return slowly


def append(cell: list[int], number: int) -> list[int]:
    cell.append(number)
    return cell
