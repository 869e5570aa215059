"""Worker streams: order, readiness and memory, decided by events rather than by the clock."""

import threading
import time
import weakref

import pytest

from backends.device import Device
from backends.promises import Promise, resolve
from backends.streams import WorkerStream

FIRST, SECOND = Device("cpu", 1), Device("cpu", 2)


def stream(device: Device = FIRST) -> WorkerStream:
    return WorkerStream(device, f"{device} test", set(), lambda: None)


def test_submit_returns_before_the_task_ran() -> None:
    gate = threading.Event()
    promise = stream().submit(gate.wait)
    assert "pending" in repr(promise)
    gate.set()
    assert promise.result() is True
    assert "done" in repr(promise)


def test_tasks_run_in_order() -> None:
    worker, ran = stream(), []
    promises = [worker.submit(ran.append, number) for number in range(100)]
    promises[-1].result()
    assert ran == list(range(100))


def test_streams_do_not_wait_for_each_other() -> None:
    gate = threading.Event()
    blocked = stream(FIRST).submit(gate.wait)
    assert stream(SECOND).submit(lambda: "done").result() == "done"
    gate.set()
    blocked.result()


def test_promises_among_the_arguments_are_waited_for_in_the_worker() -> None:
    gate = threading.Event()
    first, second = stream(FIRST), stream(SECOND)
    late = first.submit(lambda: gate.wait() and 20)
    total = second.submit(lambda pair, z: sum(pair) + z, (late, 1), 2)
    gate.set()
    assert total.result() == 23


def test_a_consumer_comes_after_the_readers_on_other_streams() -> None:
    gate = threading.Event()
    owner, reader, memory = stream(FIRST), stream(SECOND), [1]
    value = owner.submit(lambda: memory)
    gated = reader.submit(gate.wait)
    copy = reader.submit(lambda cell: list(cell), value)
    overwritten = owner.submit_consuming(lambda cell: cell.__setitem__(0, 2), value)
    # Long enough for the owner to overwrite what the reader has yet to see, if nothing held it back.
    time.sleep(0.1)
    gate.set()
    assert gated.result()
    assert copy.result() == [1]
    overwritten.result()
    assert memory == [2]


def test_items_of_a_promised_tuple_are_promises() -> None:
    pair = stream().submit(lambda: (1, (2, 3)))
    assert isinstance(pair[1], Promise)
    assert resolve((pair[0], pair[1][0])) == (1, 2)
    with pytest.raises(TypeError, match="not iterable"):
        iter(pair)


def test_an_error_reaches_everything_that_depends_on_it() -> None:
    first, second = stream(FIRST), stream(SECOND)
    broken = first.submit(lambda: 1 / 0)
    dependent = second.submit(lambda x: x, broken[0])
    with pytest.raises(ZeroDivisionError):
        dependent.result()
    assert isinstance(first.error, ZeroDivisionError)


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


def test_a_dropped_stream_ends_its_thread() -> None:
    worker = stream(Device("cpu", 99))
    worker.submit(lambda: None).result()
    (thread,) = (t for t in threading.enumerate() if t.name == "cpu:99 test")
    del worker
    thread.join(timeout=10)
    assert not thread.is_alive()
