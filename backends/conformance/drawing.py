"""Draws programs: valid ones, some of which fail at one place, on purpose.

What is asynchronous goes wrong only if earlier work is slow. So programs hold slow work (`late`),
and mostly overwrite what they have just read.
"""

from collections.abc import Callable, Mapping
from random import Random
from typing import TypeAlias

import numpy as np

from backends.arrays import tree_leaves
from backends.conformance.failures import draw_failure, draw_overlap, draw_refusal
from backends.conformance.functions import (
    draw_early_sums,
    draw_function,
    draw_steps,
    draw_training,
    draw_value_and_grad,
)
from backends.conformance.model import Content, Model, UnsuitableError, Value, tuple_text
from backends.conformance.programs import Program

Draw: TypeAlias = Callable[[Model], object]

MAX_STATEMENTS = 30
SHAPES = (
    *((), (1,), (3,), (5,), (0,)),
    *((2, 3), (3, 3), (3, 2), (4, 1), (0, 3)),
    *((2, 3, 2), (0, 2, 2)),
    *((2, 1, 4, 4), (1, 2, 3, 3)),
)
BIG = ((600_000,), (300, 2000))
"""Of a size from which backends sum in shards."""
DTYPES = (
    *("np.float32",) * 6,
    "np.float64",
    "np.float64",
    "np.int32",
    "np.int64",
    "np.uint8",
    "bool",
)
LAYOUTS = (
    "{}[::-1]",
    "{}.T",
    "{}[::2]",
    "{}[..., ::-1]",
    "np.asfortranarray({})",
    "np.broadcast_to({}, (2, *{}.shape))",
)
"""Arrays that do not lie in memory one element after the other, or cannot be written to."""
SMALL = 10_000
OVERLAPS = 1.5
"""How often a call that may fail is drawn, beside `KINDS`: it may end the program."""
UNIT = 0.2
"""The probability that a function is launched as one unit."""


def draw_program(random: Random, devices: int | None = None) -> Program:
    """Draw a program for so many devices; None: for 1 to 9. It ends with waiting for all."""
    model = Model(random, devices or random.choice((1, 2, 2, 2, 3, 4, 9)))
    length = random.randrange(4, MAX_STATEMENTS)
    threads = random.choice((1,) * 9 + (2,))
    # What other threads see of a failure, and when, is left open.
    failure_at = random.randrange(length) if threads == 1 and random.random() < 0.2 else None
    kinds = KINDS if threads > 1 else {**KINDS, draw_overlap: OVERLAPS}
    for _ in range(2 * length):
        if len(model.statements) >= length:
            break
        model.thread = random.randrange(threads)
        _attempt(random.choices(list(kinds), list(kinds.values()))[0], model)
        if (
            failure_at is not None
            and len(model.statements) > failure_at
            and _attempt(draw_failure, model)
        ):
            failure_at = None
    for model.thread in range(threads):
        for _ in range(random.randrange(1, 4)):
            _attempt(_read, model)
        model.do("waitall()")
    return model.program()


def _attempt(draw: Draw, model: Model) -> bool:
    """Draw statements of a kind, and return whether there could be some."""
    try:
        draw(model)
    except UnsuitableError:
        return False
    return True


def _load_array(model: Model) -> None:
    random = model.random
    text = _array_text(random)
    if random.random() < 0.25:
        text = tuple_text([text, *(_array_text(random) for _ in range(random.randrange(3)))])
    for device in model.some_devices(3):
        model.make(f"asarray({text}, devices[{device}])", device)


def _array_text(random: Random) -> str:
    shape = random.choice(BIG if random.random() < 0.06 else SHAPES)
    text = f"data({shape}, {random.choice(DTYPES)}, {random.randrange(1, 7)})"
    unusual = shape and shape not in BIG and random.random() < 0.15
    return random.choice(LAYOUTS).replace("{}", text) if unusual else text


def _split_and_load(model: Model) -> None:
    random = model.random
    shape = (random.choice((0, 1, 2, 5, 9)), *random.choice(((), (2,), (1, 3, 3))))
    devices = model.some_devices()
    where = ", ".join(f"devices[{device}]" for device in devices)
    model.make_on(f"split_and_load(data({shape}, {random.choice(DTYPES)}, 3), [{where}])", devices)


def _launch(model: Model) -> None:
    first = model.pick_array(lambda value: value.content.size < SMALL)
    others = range(model.random.randrange(3))
    fits = lambda value: value.device == first.device and _size(value.content) < SMALL  # noqa: E731
    arguments = [first, *(model.pick(fits) for _ in others)]
    function = draw_function(model.random, arguments)
    if model.random.random() < UNIT:
        function = f"ops.as_unit({function})"
    model.make(
        f"launch({', '.join([function, *(value.text for value in arguments)])})",
        first.device,
        *arguments,
    )


def _late(model: Model, x: Value | None = None) -> Value:
    x = x or model.pick_floats()
    matrix = f"backend.asarray(np.eye(300, dtype=np.{x.content.dtype}), devices[{x.device}])"
    return model.make(f"launch(late, {x.text}, {matrix})", x.device, x)


def _view(model: Model, x: Value | None = None) -> Value:
    """Make what may share memory with an array."""
    x = x or model.pick_floats(lambda value: value.content.ndim > 0)
    if x.content.ndim > 1 or x.content.size < 2:
        return model.make(f"launch(ops.flatten, {x.text})", x.device, x)
    cut = model.random.randrange(1, x.content.size)
    return model.make(f"launch(ops.split, {x.text}, {[cut, x.content.size - cut]})", x.device, x)


def _copy(model: Model) -> None:
    x = model.pick()
    device = model.random.randrange(model.devices)
    model.make(f"copy_to({x.text}, devices[{device}])", device, x)


def _read_and_overwrite(model: Model) -> None:
    """Read a value, or what shares its memory, on a device that is busy.

    It is overwritten meanwhile.
    """
    random = model.random
    out = model.pick(lambda value: _size(value.content) and model.consumable(value.content))
    if isinstance(out.content, np.ndarray) and out.content.ndim and out.content.dtype.kind == "f":
        _view(model, out)
    device = out.device if random.random() < 0.4 else random.randrange(model.devices)
    if random.random() < 0.8:
        # Both the queue for computation and that for copies, if there are two.
        busy = _late(
            model, model.make(f"asarray(data((3,), np.float32, 2), devices[{device}])", device)
        )
        model.make(f"copy_to({busy.text}, devices[{device}])", device, busy)
    overlapping = [
        value for value in model.values() if not model.consumable(out.content, value.content)
    ]
    for x in random.sample(overlapping, min(len(overlapping), random.randint(1, 2))):
        if x.device == device and _size(x.content) < SMALL and random.random() < 0.5:
            model.make(f"launch({draw_function(random, [x])}, {x.text})", device, x)
        else:
            model.make(f"copy_to({x.text}, devices[{device}])", device, x)
    if _can_be_summed(model, out) and random.random() < 0.4:
        _allreduce(model, out)
    else:
        _overwrite(model, out)


def _overwrite(model: Model, out: Value | None = None) -> None:
    out = out or model.pick(lambda value: model.consumable(value.content))
    alike = [value for value in _alike(model, out) if model.consumable(out.content, value.content)]
    if alike and model.random.random() < 0.5:
        x = model.random.choice(alike)
    else:
        device = model.random.randrange(model.devices)
        x = model.make(f"asarray({_like(out.content)}, devices[{device}])", device)
    model.make(
        f"copy_to({x.text}, devices[{out.device}], out={out.text})", out.device, x, consumes=[out]
    )


def _can_be_summed(model: Model, value: Value) -> bool:
    return model.consumable(value.content) and all(
        x.dtype != bool for x in tree_leaves(value.content)
    )


def _allreduce(model: Model, first: Value | None = None) -> None:
    """Sum a value with values of some other devices: such as are there, copies of it, or new
    ones.
    """
    random = model.random
    first = first or model.pick(lambda value: _can_be_summed(model, value))
    terms = [first]
    others = [device for device in range(model.devices) if device != first.device]
    for device in random.sample(others, random.randint(min(1, len(others)), len(others))):
        alike = [
            value
            for value in _alike(model, first)
            if value.device == device
            and model.consumable(*(term.content for term in terms), value.content)
        ]
        if alike:
            terms.append(random.choice(alike))
        elif random.random() < 0.5:
            terms.append(model.make(f"copy_to({first.text}, devices[{device}])", device, first))
        else:
            terms.append(model.make(f"asarray({_like(first.content)}, devices[{device}])", device))
    random.shuffle(terms)
    model.allreduce(terms)


def _read(model: Model) -> None:
    model.read(model.pick())


def _read_by_host(model: Model) -> None:
    """Read a copy that was made on the queue that computes.

    From a GPU, only `waitall` waits for it.
    """
    x = model.pick_array()
    copy = model.make(f"launch(ops.to_host, {x.text})", x.device, x)
    model.do("waitall()")
    model.read(copy)
    model.drop(copy)


def _count(model: Model) -> None:
    """Count right answers among many classes, by labels of which some do not exist."""
    random = model.random
    device = random.randrange(model.devices)
    classes = random.choice((5, 300))
    # Row i has its largest score at the i-th class of the last five.
    scores = model.make(
        f"asarray(np.eye(5, {classes}, {classes - 5}, np.float32), devices[{device}])", device
    )
    answers = [random.choice((classes - 5 + row, 256 + row, row, -1)) for row in range(5)]
    dtype = random.choice(("np.int32", "np.int64", "np.uint8"))
    labels = model.make(f"asarray(np.array({answers}).astype({dtype}), devices[{device}])", device)
    source = f"backend.launch(ops.count_correct, {scores.text}, {labels.text})"
    model.read_from(f"int(backend.to_numpy({source}))", scores, labels)


def _wait(model: Model) -> None:
    if model.random.random() < 0.2:
        model.do("waitall()")
    else:
        x = model.pick()
        model.do(f"wait({x.text})", x, waits=True)


def _forget(model: Model) -> None:
    model.drop(model.pick())


def _alike(model: Model, value: Value) -> list[Value]:
    """List the values of the same shapes and dtypes."""
    wanted = _like(value.content)
    return [other for other in model.values() if _like(other.content) == wanted]


def _like(content: Content) -> str:
    """Write an array of the same shape and dtype, or a tuple of such."""
    if isinstance(content, tuple):
        return tuple_text([_like(item) for item in content])
    dtype = "bool" if content.dtype == bool else f"np.{content.dtype}"
    return f"data({content.shape}, {dtype}, 3)"


def _size(content: Content) -> int:
    return sum(leaf.size for leaf in tree_leaves(content))


KINDS: Mapping[Draw, float] = {
    _load_array: 3,
    _split_and_load: 1,
    _launch: 6,
    _late: 4,
    _view: 3,
    _copy: 3,
    _overwrite: 2,
    _read_and_overwrite: 4,
    _allreduce: 4,
    _read: 3,
    _read_by_host: 0.5,
    _count: 0.3,
    _wait: 1,
    _forget: 0.5,
    draw_value_and_grad: 3,
    draw_training: 1,
    draw_early_sums: 1,
    draw_steps: 0.5,
    draw_refusal: 0.3,
}
"""Kinds of statements, and how often each is drawn."""
