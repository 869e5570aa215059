"""A failure is told once, reaches all that was computed from it, and is never mistaken for a
result.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial

import numpy as np
import pytest

from backends import HOST, Array, Backend, BackendError, ComputationError
from backends.protocol import VERBS
from tests.backends.protocol.arrays import Load, assert_equal, full, wait_by


def failing(backend: Backend) -> Callable[[Array], Array]:
    """Make a function that is accepted by the framework and fails when it runs."""
    if backend.name == "mxnet":
        import mxnet

        # The operator runs, and complains of its negative scale, when its turn comes.
        return lambda x: mxnet.np.random.normal(0, -1, x.shape, ctx=x.ctx)
    return lambda x: x.reshape(7, 11)


def arrays_know_devices(backend: Backend) -> bool:
    """Return whether an array says on which device it is: arrays in one memory need not."""
    return backend.name in ("mxnet", "jax") or backend.engine == "async"


@pytest.mark.parametrize("verb", ["wait", "waitall", "to_numpy"])
@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_failure_surfaces_when_it_is_waited_for(
    backend: Backend, verb: str, elsewhere: bool
) -> None:
    """The value that is waited for is the failed one, or depends on it on another device."""
    x = full(backend, 1, 2, 2)
    with pytest.raises(ComputationError, match=rf"{backend.name}\b.*\w+Error"):
        value = backend.launch(failing(backend), x)
        if elsewhere:
            copied = backend.copy_to(value, backend.devices[1])
            value = backend.launch(backend.ops.relu, copied)
        wait_by(backend, verb, value)


def assert_refuses(backend: Backend, verb: str, *arguments: object) -> None:
    """Assert that a backend refuses a verb since a failure, whatever the arguments are."""
    with pytest.raises(ComputationError, match="refuses further work"):
        getattr(backend, verb)(*arguments)


def test_after_a_failed_wait_every_verb_refuses_and_a_backend_loaded_anew_works(load: Load) -> None:
    broken = load(2)
    x = full(broken, 1, 2, 2)
    with pytest.raises(ComputationError):
        x = broken.launch(failing(broken), x)
        broken.wait(x)
    for verb in VERBS:
        assert_refuses(broken, verb, x, broken.devices[1])
    fresh = load(2)
    assert_equal(fresh, fresh.launch(fresh.ops.add, full(fresh, 1, 2, 2), 1.0), np.full((2, 2), 2))


class OwnError(BaseException):
    """An error that no framework has heard of."""


class UntoldError(Exception):
    """An exception whose text is its argument; if that is an exception, asking for it raises it."""

    def __str__(self) -> str:
        (message,) = self.args
        if isinstance(message, BaseException):
            raise message
        return message


RAISED = (
    ValueError("no"),
    StopIteration(),
    StopAsyncIteration(),
    SystemExit(),
    GeneratorExit(),
    IndexError(),
    OwnError(),
    UntoldError(RuntimeError("no")),
    UntoldError(SystemExit()),
    UntoldError(GeneratorExit()),
    UntoldError(KeyboardInterrupt()),
    UntoldError(UntoldError(ValueError())),
    UntoldError(None),
    UntoldError(""),
)
"""What a function raises, with and without a message that can be read."""


@pytest.mark.parametrize("error", RAISED)
def test_whatever_a_launched_function_raises_is_its_failure(
    backend: Backend, error: BaseException
) -> None:
    def fail(_: Array) -> Array:
        raise type(error)(*error.args)

    x = full(backend, 1, 2, 2)
    message = rf"{backend.name}\b.*{type(error).__name__}"
    with pytest.raises(ComputationError, match=message) as failed:
        pair = backend.launch(lambda x, y: (x, y), backend.launch(fail, x), x)
        backend.wait(pair)
    assert "\n" not in str(failed.value)
    assert_refuses(backend, "waitall")


@pytest.mark.parametrize("odd", [None, "text", {1}, {"x": 1.0}, object()])
@pytest.mark.parametrize("is_in_tuple", [False, True])
def test_a_launched_function_without_a_value_has_failed(
    backend: Backend, odd: object, is_in_tuple: bool
) -> None:
    def compute(x: Array) -> Array:
        return (x, odd) if is_in_tuple else odd

    with pytest.raises(ComputationError, match=rf"{backend.name}\b.*\w+Error"):
        backend.to_numpy(backend.launch(compute, full(backend, 1, 2, 2)))
    for verb in VERBS:
        assert_refuses(backend, verb)


ODD = (None, 1.0, "text", [1.0, 2.0], [[1.0], [2.0, 3.0]], (None,), {1.0}, {"x": 1.0}, object())
"""Objects that no verb takes for a value or for values."""


WRONG: dict[str, Callable[[Backend, Array], object]] = {
    "launch of nothing": lambda backend, x: backend.launch(lambda: x),
    "launch of a number": lambda backend, x: backend.launch(lambda number: number, 1.0),
    "launch without an array": lambda backend, x: backend.launch(
        lambda value: value, ((), (1, None))
    ),
    "copy to the host": lambda backend, x: backend.copy_to(x, HOST),
    "copy to the host's memory": lambda backend, x: backend.copy_to(x, HOST, out=x),
    "load on the host": lambda backend, x: backend.asarray(np.ones(2), HOST),
    "no rows": lambda backend, x: backend.split_and_load(np.array(1.0), backend.devices),
    "sum of an array's rows": lambda backend, x: backend.allreduce(x),
    "sum of an iterator": lambda backend, x: backend.allreduce(iter([x])),
    "sum of a dict": lambda backend, x: backend.allreduce({0: x}),
    "sum of nothing": lambda backend, x: backend.allreduce([]),
    "more values than devices": lambda backend, x: backend.allreduce(
        [full(backend, 1, 2) for _ in range(4)]
    ),
}
WITH_ODD: dict[str, Callable[[Backend, Array, object], object]] = {
    "copy": lambda backend, x, odd: backend.copy_to(odd, backend.devices[1]),
    "copy within": lambda backend, x, odd: backend.copy_to((x, odd), backend.devices[1]),
    "load": lambda backend, x, odd: backend.asarray(odd, backend.devices[0]),
    "shards": lambda backend, x, odd: backend.split_and_load(odd, backend.devices),
    "sum of": lambda backend, x, odd: backend.allreduce(odd),
    "sum with": lambda backend, x, odd: backend.allreduce([x, odd]),
    "sum within": lambda backend, x, odd: backend.allreduce([(x, odd)]),
}


def refuse(backend: Backend, request: Callable[[Backend, Array], object]) -> str:
    """Return the line in which a wrong request is refused; the backend must go on afterwards."""
    x = full(backend, 1, 2, 2)
    with pytest.raises(BackendError) as refused:
        request(backend, x)
    assert not isinstance(refused.value, ComputationError)
    assert "\n" not in str(refused.value)
    assert_equal(backend, backend.launch(backend.ops.add, x, 1.0), np.full((2, 2), 2))
    return str(refused.value)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_request_is_refused_in_one_line_and_the_backend_goes_on(
    backend: Backend, name: str
) -> None:
    refuse(backend, WRONG[name])


@pytest.mark.parametrize("verb", WITH_ODD)
def test_what_is_no_value_is_refused_in_one_line_and_the_backend_goes_on(
    backend: Backend, verb: str
) -> None:
    iterator = iter((1.0, 2.0))
    for odd in (*ODD, iterator):
        refuse(backend, partial(WITH_ODD[verb], odd=odd))


def skip_unless_arrays_know_devices(backend: Backend) -> None:
    if not arrays_know_devices(backend):
        pytest.skip("arrays in one memory know no device")


def test_two_values_of_one_device_are_not_summed_if_arrays_know_their_device(
    backend: Backend,
) -> None:
    skip_unless_arrays_know_devices(backend)
    refuse(backend, lambda backend, x: backend.allreduce([x, full(backend, 1, 2, 2)]))


@pytest.mark.parametrize("verb", ["to_numpy", "waitall"])
@pytest.mark.parametrize("depth", [0, 1])
def test_an_item_that_a_pending_tuple_does_not_have_is_an_error(
    backend: Backend, verb: str, depth: int
) -> None:
    x = full(backend, 1, 300, 300)
    # An engine that has a real tuple refuses the index at once.
    with pytest.raises((ComputationError, IndexError)):
        nested = backend.launch(lambda x: ((backend.ops.matmul(x, x), x), x), x)
        pair = nested[0] if depth else nested
        wait_by(backend, verb, pair[2])


def test_a_message_of_an_error_does_nothing_to_a_terminal(backend: Backend) -> None:
    def fail(_: Array) -> Array:
        raise ValueError("\x1b[31mred\u202e\u2028left")

    x = full(backend, 1, 2, 2)
    with pytest.raises(ComputationError) as raised:
        backend.wait(backend.launch(fail, x))
    assert str(raised.value).endswith(r"ValueError: \x1b[31mred\u202e\u2028left")


@pytest.mark.parametrize("index", ["a", None, 0.5, slice(0, 1), slice(None), ..., (0, 1), [0]])
@pytest.mark.parametrize("depth", [0, 1])
def test_what_is_not_computed_yet_is_indexed_by_one_number(
    backend: Backend, index: object, depth: int
) -> None:
    nested = backend.launch(lambda x: (x, (x, x)), full(backend, 1, 2, 2))
    value = nested[1] if depth else nested
    if isinstance(value, tuple):
        pytest.skip("this engine's results are tuples themselves")
    with pytest.raises(BackendError) as refused:
        value[index]
    assert not isinstance(refused.value, ComputationError)
    assert "\n" not in str(refused.value)
    assert_equal(backend, value[np.int64(0)], np.ones((2, 2)))


SHORT, LONG = 100, 600_001
"""Backends may sum long arrays in another way than short ones."""


def ones(backend: Backend, length: int) -> list[Array]:
    """Load an array of ones on each device."""
    return [full(backend, 1, length, device=device) for device in range(len(backend.devices))]


@pytest.mark.parametrize("length", [SHORT, LONG])
@pytest.mark.parametrize("broken", [0, 1, 2])
@pytest.mark.parametrize("read", [0, 1, 2, "all"])
def test_every_sum_of_a_failed_array_fails(
    load: Load, length: int, broken: int, read: int | str
) -> None:
    backend = load(3)
    terms = ones(backend, length)
    device = r"[cg]pu:\d.*" if arrays_know_devices(backend) else ""
    with pytest.raises(ComputationError, match=rf"{backend.name}\b.*{device}\w+Error"):
        terms[broken] = backend.launch(failing(backend), terms[broken])
        sums = backend.allreduce(terms)
        if read == "all":
            backend.waitall()
        else:
            backend.to_numpy(sums[int(read)])
    assert_refuses(backend, "to_numpy", terms[0])


@pytest.mark.parametrize("read", [0, 1])
def test_one_exchange_fails_if_one_of_its_arrays_has_failed(load: Load, read: int) -> None:
    backend = load(2)
    long, short = ones(backend, LONG), ones(backend, SHORT)
    with pytest.raises(ComputationError):
        short[0] = backend.launch(failing(backend), short[0])
        sums = backend.allreduce(list(zip(long, short, strict=True)))
        backend.wait(sums[read][1])


@pytest.mark.parametrize("length", [SHORT, LONG])
def test_what_is_computed_from_a_failed_sum_fails(load: Load, length: int) -> None:
    backend = load(2)
    terms = ones(backend, length)
    with pytest.raises(ComputationError):
        terms[1] = backend.launch(failing(backend), terms[1])
        total, _ = backend.allreduce(terms)
        increased = backend.launch(backend.ops.add, total, 1.0)
        copy = backend.copy_to(increased, backend.devices[1])
        _, gradient = ones(backend, length)
        updated = backend.launch(backend.ops.sgd, (copy,), (gradient,), 1.0)
        backend.to_numpy(updated)


def test_a_failure_that_nobody_kept_is_told_at_the_end(load: Load) -> None:
    backend = load(2)
    with pytest.raises(ComputationError):
        backend.launch(failing(backend), ones(backend, SHORT)[1])
        backend.waitall()


def test_an_unread_failure_does_not_reach_a_backend_that_is_loaded_later(load: Load) -> None:
    broken = load(2)
    kept = None
    with suppress(ComputationError):
        kept = broken.launch(failing(broken), ones(broken, SHORT)[0])
    fresh = load(2)
    fresh.waitall()
    assert_equal(fresh, full(fresh, 1, 2), np.ones(2))
    # The failure is not lost either.
    with pytest.raises(ComputationError):
        broken.wait(kept)
        broken.waitall()


def test_a_failure_is_not_lost_if_another_backend_waits_first(load: Load) -> None:
    broken, other = load(2), load(2)
    kept = None
    with suppress(ComputationError):
        kept = broken.launch(failing(broken), ones(broken, SHORT)[0])
    with suppress(ComputationError):
        # MXNet does not say whose failure it is.
        other.waitall()
    with pytest.raises(ComputationError):
        broken.to_numpy(kept)
