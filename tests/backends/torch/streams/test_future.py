"""Futures: items of a tuple, those that are announced early, and errors."""

import threading
from collections.abc import Callable

import pytest

from backends import BackendError
from backends.torch.streams.future import Announcing, Failure, Future, completed_future, device_of, resolve
from tests.backends.torch.streams.made import FIRST, SECOND, stream


def test_items_of_a_future_of_a_tuple_are_futures() -> None:
    pair = stream().submit(lambda: (1, (2, 3)))
    assert isinstance(pair[1], Future)
    assert resolve((pair[0], pair[1][0])) == (1, 2)
    with pytest.raises(TypeError, match="not iterable"):
        iter(pair)


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
    assert future[1][1].result() == "late"
    assert future[1].result() == ("early", "late")


def test_an_item_that_is_not_announced_is_there_with_the_rest() -> None:
    gate = threading.Event()
    future = stream().submit(lambda: gate.wait() and ("a", "b"))
    items = [stream(SECOND).submit(lambda item: item, future[place]) for place in (0, 1)]
    gate.set()
    assert [item.result() for item in items] == ["a", "b"]


def test_waiting_for_an_item_raises_what_prevented_it() -> None:
    gate = threading.Event()
    future = stream().submit(lambda: gate.wait() and 1 // 0)
    item = stream(SECOND).submit(lambda item: item, future[0])
    gate.set()
    with pytest.raises(Failure, match="ZeroDivisionError"):
        item.result()


def test_thousands_of_items_are_all_delivered() -> None:
    # A wake-up that is lost now and then would hang here.
    producer, consumer = stream(FIRST), stream(SECOND)
    pairs = [producer.submit(lambda number=number: (number, -number)) for number in range(5000)]
    items = [consumer.submit(lambda item: item, pair[1]) for pair in pairs]
    assert [item.result() for item in items] == [-number for number in range(5000)]


def test_outside_a_stream_announcements_go_nowhere() -> None:
    assert Announcing(lambda announce, x: announce((0,), x) or (x,))(5) == (5,)


def test_the_device_is_that_of_the_first_future_however_deep() -> None:
    first, second = completed_future(FIRST, 1), completed_future(SECOND, 2)
    assert device_of(0.5, (), (3, (second,)), first) == SECOND
    assert device_of(first, second) == FIRST
    with pytest.raises(BackendError, match="array of this backend"):
        device_of(0.5, (1, 2))
