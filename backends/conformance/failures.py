"""Draws what must fail: computations that raise, and requests that are refused; and what may fail.

That are calls that consume what overlaps: repeated values, swaps, and several views of one array.
They fail, or their result is as if the memories were different.
"""

from collections.abc import Mapping

import numpy as np

from backends.conformance.model import Model, UnsuitableError, Value, tuple_text
from backends.conformance.programs import Failure

ERRORS = (
    'ValueError("made to fail")',
    'ValueError("made to fail")',
    "StopIteration()",
    "SystemExit()",
    "GeneratorExit()",
    "Untold()",
)
REQUESTS: Mapping[str, Failure] = {
    "launch(lambda: 0)": "request",
    "asarray(np.zeros(2, complex), devices[0])": "perhaps",
    "asarray(np.zeros(2, np.int16), devices[0])": "perhaps",
    'asarray(np.array(["text"]), devices[0])': "perhaps",
    "asarray(np.zeros(2, np.float32), Device('cpu', 77))": "device",
    "asarray(None, devices[0])": "request",
    "asarray([1.0, 2.0], devices[0])": "request",
    "allreduce(backend.asarray(np.zeros(1), devices[0]))": "request",
    "allreduce(iter([backend.asarray(np.zeros(2), devices[0])]))": "request",
    "allreduce([None])": "request",
}


def draw_failure(model: Model) -> None:
    """Draw a computation that fails."""
    draw = model.random.choice(
        (_raise, _raise, _multiply, _misfit, _label, _label, _write, _sum, _sum_what_failed)
    )
    draw(model)


def _raise(model: Model) -> None:
    """Launch a function that raises an error."""
    x = model.pick()
    error = model.random.choice(ERRORS)
    _fail(model, f"launch(lambda x: fail({error}), {x.text})", x)


def _multiply(model: Model) -> None:
    """Multiply a matrix that is not square by itself."""
    x = model.pick_floats(lambda value: value.content.ndim == 2)
    rows, columns = x.content.shape
    if not rows or rows == columns:
        raise UnsuitableError
    _fail(model, f"launch(ops.matmul, {x.text}, {x.text})", x)


def _misfit(model: Model) -> None:
    """Launch an op with a second argument whose shape does not fit, but can be broadcast."""

    def has_rows(value: Value) -> bool:
        return value.content.ndim == 2 and len(value.content) > 1 and value.content.size > 0

    x = model.pick_floats(has_rows)
    rows, columns = x.content.shape
    device = f"devices[{x.device}]"
    labels_shape = model.random.choice(("1", f"({rows}, 1)"))
    labels = f"backend.asarray(np.zeros({labels_shape}, np.int64), {device})"
    vector = f"backend.asarray(data({(columns,)}, np.{x.content.dtype}, 3), {device})"
    calls = (
        f"cross_entropy, {x.text}, {labels}",
        f"count_correct, {x.text}, {labels}",
        f"matmul, {x.text}, {vector}",
    )
    call = model.random.choice(calls)
    _fail(model, f"launch(ops.{call})", x, stand_in=f"launch(ops.total, {x.text})")


def _fail(model: Model, call: str, x: Value, stand_in: str = "") -> Value:
    """Add a call whose computation fails; `stand_in` gives the reference a value in its place."""
    stand_in = stand_in or f"copy_to({x.text}, devices[{x.device}])"
    return model.make(call, x.device, x, fails="computation", stand_in=stand_in)


def _label(model: Model, scores: Value | None = None) -> Value:
    """Launch `cross_entropy` with labels of classes that do not exist, and return its value, whose
    computation fails.

    A backend with queues can only find out when it computes. The reference, which has no failed
    values, sums the scores instead.
    """
    scores = scores or model.pick_floats(
        lambda value: value.content.ndim == 2 and value.content.size
    )
    rows, columns = scores.content.shape
    label = model.random.choice((columns, -1, columns + 100))
    dtype = model.random.choice(("int32", "int64"))
    labels = f"backend.asarray(np.full({rows}, {label}, np.{dtype}), devices[{scores.device}])"
    call = f"launch(ops.cross_entropy, {scores.text}, {labels})"
    return _fail(model, call, scores, stand_in=f"launch(ops.total, {scores.text})")


def _sum_what_failed(model: Model) -> None:
    """Sum arrays, mostly long ones; the computation that one of them depends on fails."""
    random = model.random
    devices = model.some_devices(3)
    failing_device = devices[0]
    scores = model.make(
        f"asarray(data((2, 3), np.float32, 4), devices[{failing_device}])", failing_device
    )
    loss = _label(model, scores)
    length = random.choice((5, 600_000, 600_000))
    terms = [
        model.make(f"asarray(data(({length},), np.float32, 3), devices[{device}])", device)
        for device in devices
    ]
    call = f"launch(ops.add, {terms[0].text}, {loss.text})"
    terms[0] = model.make(call, failing_device, terms[0], loss)
    random.shuffle(terms)
    sums = model.allreduce(terms)
    model.read(random.choice(sums))


def _write(model: Model) -> None:
    """Copy an array of another shape or dtype into the memory of an array."""
    out = model.pick_floats()
    device = f"devices[{out.device}]"
    source = f"backend.asarray({_unlike(model, out.content)}, {device})"
    call = f"copy_to({source}, {device}, out={out.text})"
    stand_in = f"copy_to({out.text}, {device})"
    model.make(call, out.device, consumes=[out], fails="either", stand_in=stand_in)


def _sum(model: Model) -> None:
    """Sum an array with one of another shape or dtype on another device."""
    x = model.pick_floats()
    other_devices = [device for device in range(model.devices) if device != x.device]
    if not other_devices:
        raise UnsuitableError
    array = _unlike(model, x.content)
    device = model.random.choice(other_devices)
    other_term = f"backend.asarray({array}, devices[{device}])"
    model.do(f"allreduce([{x.text}, {other_term}])", consumes=[x], fails="either")


def _unlike(model: Model, x: np.ndarray) -> str:
    """Write a new array that has another shape or another dtype than an array."""
    array_of_other_shape = f"np.zeros({(*x.shape, 2)}, np.{x.dtype})"
    array_of_other_dtype = f"np.zeros({x.shape}, np.int32)"
    return model.random.choice((array_of_other_shape, array_of_other_dtype))


def draw_refusal(model: Model) -> None:
    """Draw a request that a backend refuses at the call, after which the backend goes on."""
    if model.random.random() < 0.8:
        request, fails = model.random.choice(list(REQUESTS.items()))
        model.do(request, fails=fails)
        return
    # A sum takes one value per device, and these are two on one device.
    x = model.pick_floats()
    zeros = f"np.zeros({x.content.shape}, np.{x.content.dtype})"
    second_term = f"backend.asarray({zeros}, devices[{x.device}])"
    model.do(f"allreduce([{x.text}, {second_term}])", consumes=[x], fails="device")


def draw_overlap(model: Model) -> None:
    """Draw a call that consumes two arrays which overlap each other, or which it also reads."""
    random = model.random
    draw_pair = random.choice((_repeated, _by_another_name, _parts, _swapped))
    first, second = draw_pair(model)
    device = f"devices[{first.device}]"
    pair = tuple_text([first.text, second.text])
    swapped_pair = tuple_text([second.text, first.text])
    array = f"data({first.content.shape}, np.{first.content.dtype}, 3)"
    new_pair = f"backend.asarray(({array}, {array}), {device})"
    guard = f"backend.asarray(np.ones(1, np.float32), {device})"
    read_pair = swapped_pair
    # If the arrays of the pair do not overlap each other, the call must also read them.
    if not model.consumable(first.content, second.content):
        read_pair = random.choice((swapped_pair, new_pair))
    calls = [
        f"copy_to({read_pair}, {device}, out={pair})",
        f"launch(ops.sgd, {pair}, {read_pair}, 0.5)",
        f"launch(ops.sgd_while_finite, {pair}, {read_pair}, 0.5, {guard})",
    ]
    if read_pair is new_pair:
        other_devices = [number for number in range(model.devices) if number != first.device]
        other_terms = [
            f"backend.asarray(({array}, {array}), devices[{number}])" for number in other_devices
        ]
        terms = ", ".join([pair, *other_terms])
        calls.append(f"allreduce([{terms}])")
    call = random.choice(calls)
    model.read_from(f"backend.to_numpy(backend.{call})", consumes=[first, second], fails="may")


def _repeated(model: Model) -> tuple[Value, Value]:
    """Return one value twice."""
    x = model.pick_floats()
    return x, x


def _by_another_name(model: Model) -> tuple[Value, Value]:
    """Return a value, and the same value under a second name."""
    x = model.pick_floats()
    return x, model.make(f"launch(lambda x: x, {x.text})", x.device, x)


def _parts(model: Model) -> tuple[Value, Value]:
    """Return a vector without its last element, and the same vector without its first element.

    Both overlap unless the vector has only two elements.
    """
    x = model.pick_floats(lambda value: value.content.ndim == 1 and value.content.size > 1)
    most = x.content.size - 1
    without_last = model.make(f"launch(ops.split, {x.text}, {[most, 1]})", x.device, x)
    without_first = model.make(f"launch(ops.split, {x.text}, {[1, most]})", x.device, x)
    return without_last.item(0), without_first.item(1)


def _swapped(model: Model) -> tuple[Value, Value]:
    """Return two arrays of one device, shape and dtype, which do not overlap."""
    x = model.pick_floats()

    def is_alike_and_apart(value: Value) -> bool:
        is_alike = (
            value.device == x.device
            and value.content.shape == x.content.shape
            and value.content.dtype == x.content.dtype
        )
        return is_alike and model.consumable(value.content, x.content)

    y = model.pick_floats(is_alike_and_apart)
    return x, y
