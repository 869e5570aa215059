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
    model.random.choice(
        (_raise, _raise, _multiply, _misfit, _label, _label, _write, _sum, _sum_what_failed)
    )(model)


def _raise(model: Model) -> None:
    x = model.pick()
    _fail(model, f"launch(lambda x: fail({model.random.choice(ERRORS)}), {x.text})", x)


def _multiply(model: Model) -> None:
    x = model.pick_floats(lambda value: value.content.ndim == 2)
    rows, columns = x.content.shape
    if not rows or rows == columns:
        raise UnsuitableError
    _fail(model, f"launch(ops.matmul, {x.text}, {x.text})", x)


def _misfit(model: Model) -> None:
    """Draw shapes that frameworks would broadcast."""
    x = model.pick_floats(
        lambda value: value.content.ndim == 2 and len(value.content) > 1 and value.content.size
    )
    device = f"devices[{x.device}]"
    label = (
        f"backend.asarray(np.zeros({model.random.choice(('1', f'({len(x.content)}, 1)'))}, "
        f"np.int64), {device})"
    )
    vector = f"backend.asarray(data({x.content.shape[1:]}, np.{x.content.dtype}, 3), {device})"
    calls = (
        f"cross_entropy, {x.text}, {label}",
        f"count_correct, {x.text}, {label}",
        f"matmul, {x.text}, {vector}",
    )
    _fail(model, f"launch(ops.{model.random.choice(calls)})", x, f"launch(ops.total, {x.text})")


def _fail(model: Model, call: str, x: Value, stand_in: str = "") -> Value:
    stand_in = stand_in or f"copy_to({x.text}, devices[{x.device}])"
    return model.make(call, x.device, x, fails="computation", stand_in=stand_in)


def _label(model: Model, scores: Value | None = None) -> Value:
    """Ask for the loss of labels that are none: a backend with queues can only find out when it
    computes.
    """
    scores = scores or model.pick_floats(
        lambda value: value.content.ndim == 2 and value.content.size
    )
    rows, columns = scores.content.shape
    label = model.random.choice((columns, -1, columns + 100))
    dtype = model.random.choice(("int32", "int64"))
    labels = f"backend.asarray(np.full({rows}, {label}, np.{dtype}), devices[{scores.device}])"
    call = f"launch(ops.cross_entropy, {scores.text}, {labels})"
    return _fail(model, call, scores, f"launch(ops.total, {scores.text})")


def _sum_what_failed(model: Model) -> None:
    """Sum arrays, mostly long ones, of which one is computed from what fails."""
    random = model.random
    devices = model.some_devices(3)
    broken, *_ = devices
    scores = model.make(f"asarray(data((2, 3), np.float32, 4), devices[{broken}])", broken)
    loss = _label(model, scores)
    length = random.choice((5, 600_000, 600_000))
    terms = [
        model.make(f"asarray(data(({length},), np.float32, 3), devices[{device}])", device)
        for device in devices
    ]
    terms[0] = model.make(f"launch(ops.add, {terms[0].text}, {loss.text})", broken, terms[0], loss)
    random.shuffle(terms)
    model.read(random.choice(model.allreduce(terms)))


def _write(model: Model) -> None:
    out = model.pick_floats()
    device = f"devices[{out.device}]"
    stand_in = f"copy_to({out.text}, {device})"
    call = (
        f"copy_to(backend.asarray({_unlike(model, out.content)}, {device}), {device}, "
        f"out={out.text})"
    )
    model.make(call, out.device, consumes=[out], fails="either", stand_in=stand_in)


def _sum(model: Model) -> None:
    x = model.pick_floats()
    others = [device for device in range(model.devices) if device != x.device]
    if not others:
        raise UnsuitableError
    other = f"backend.asarray({_unlike(model, x.content)}, devices[{model.random.choice(others)}])"
    model.do(f"allreduce([{x.text}, {other}])", consumes=[x], fails="either")


def _unlike(model: Model, x: np.ndarray) -> str:
    """Write an array of another shape or dtype."""
    other_shape = f"np.zeros({(*x.shape, 2)}, np.{x.dtype})"
    return model.random.choice((other_shape, f"np.zeros({x.shape}, np.int32)"))


def draw_refusal(model: Model) -> None:
    """Draw a request that a backend refuses at the call, and goes on."""
    if model.random.random() < 0.8:
        request, fails = model.random.choice(list(REQUESTS.items()))
        model.do(request, fails=fails)
        return
    x = model.pick_floats()
    twin = (
        f"backend.asarray(np.zeros({x.content.shape}, np.{x.content.dtype}), devices[{x.device}])"
    )
    model.do(f"allreduce([{x.text}, {twin}])", consumes=[x], fails="device")


def draw_overlap(model: Model) -> None:
    """Draw a call whose consumed arguments overlap each other, or what they are computed from."""
    random = model.random
    one, other = random.choice((_repeated, _by_another_name, _parts, _swapped))(model)
    device = f"devices[{one.device}]"
    pair, swapped = tuple_text([one.text, other.text]), tuple_text([other.text, one.text])
    new = f"data({one.content.shape}, np.{one.content.dtype}, 3)"
    new_pair = f"backend.asarray(({new}, {new}), {device})"
    guard = f"backend.asarray(np.ones(1, np.float32), {device})"
    # Two arrays overlap only if they are also what is read.
    reads = (
        swapped
        if model.consumable(one.content, other.content)
        else random.choice((swapped, new_pair))
    )
    calls = [
        f"to_numpy(backend.copy_to({reads}, {device}, out={pair}))",
        f"to_numpy(backend.launch(ops.sgd, {pair}, {reads}, 0.5))",
        f"to_numpy(backend.launch(ops.sgd_while_finite, {pair}, {reads}, 0.5, {guard}))",
    ]
    if reads is not swapped:
        elsewhere = [device for device in range(model.devices) if device != one.device]
        terms = [
            pair,
            *(f"backend.asarray(({new}, {new}), devices[{device}])" for device in elsewhere),
        ]
        calls.append(f"to_numpy(backend.allreduce([{', '.join(terms)}]))")
    model.read_from(f"backend.{random.choice(calls)}", consumes=[one, other], fails="may")


def _repeated(model: Model) -> tuple[Value, Value]:
    x = model.pick_floats()
    return x, x


def _by_another_name(model: Model) -> tuple[Value, Value]:
    x = model.pick_floats()
    return x, model.make(f"launch(lambda x: x, {x.text})", x.device, x)


def _parts(model: Model) -> tuple[Value, Value]:
    """Make two parts of one vector that overlap unless it has two elements."""
    x = model.pick_floats(lambda value: value.content.ndim == 1 and value.content.size > 1)
    most = x.content.size - 1
    first, last = (
        model.make(f"launch(ops.split, {x.text}, {cut})", x.device, x)
        for cut in ([most, 1], [1, most])
    )
    return first.item(0), last.item(1)


def _swapped(model: Model) -> tuple[Value, Value]:
    x = model.pick_floats()

    def is_alike(value: Value) -> bool:
        same = (value.device, value.content.shape, value.content.dtype) == (
            x.device,
            x.content.shape,
            x.content.dtype,
        )
        return same and model.consumable(value.content, x.content)

    y = model.pick_floats(is_alike)
    return x, y
