"""Draws programs: valid ones, some of which fail at one place, on purpose.

What is asynchronous goes wrong only if earlier work is slow. So programs hold slow work (`late`),
and mostly overwrite what they have just read.
"""

from collections.abc import Callable, Mapping
from random import Random

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

Draw = Callable[[Model], object]

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
    """Draw a program for a number of devices, by default 1 to 9.

    Each of its threads ends with waiting for all.
    """
    model = Model(random, devices or random.choice((1, 2, 2, 2, 3, 4, 9)))
    length = random.randrange(4, MAX_STATEMENTS)
    # One program in ten has two threads.
    threads = random.choice((1,) * 9 + (2,))
    failure_position: int | None = None
    weight_of_kind = dict(KINDS)
    # The protocol leaves open when other threads see a failure, so only one thread fails.
    if threads == 1:
        if random.random() < 0.2:
            failure_position = random.randrange(length)
        weight_of_kind[draw_overlap] = OVERLAPS
    kinds, weights = list(weight_of_kind), list(weight_of_kind.values())
    # Not all attempts add a statement.
    for _ in range(2 * length):
        if len(model.statements) >= length:
            break
        model.thread = random.randrange(threads)
        (kind,) = random.choices(kinds, weights)
        _attempt(kind, model)
        if failure_position is not None and len(model.statements) > failure_position:
            was_drawn = _attempt(draw_failure, model)
            if was_drawn:
                failure_position = None
    for thread in range(threads):
        model.thread = thread
        for _ in range(random.randrange(1, 4)):
            _attempt(_read, model)
        model.do("waitall()")
    return model.program()


def _attempt(draw: Draw, model: Model) -> bool:
    """Draw statements of a kind, and return whether the program has values for them."""
    try:
        draw(model)
    except UnsuitableError:
        return False
    return True


def _load_array(model: Model) -> None:
    """Add calls that load an array, or a tuple of arrays, on up to three devices."""
    random = model.random
    text = _array_text(random)
    if random.random() < 0.25:
        further_texts = [_array_text(random) for _ in range(random.randrange(3))]
        text = tuple_text([text, *further_texts])
    for device in model.some_devices(3):
        model.make(f"asarray({text}, devices[{device}])", device)


def _array_text(random: Random) -> str:
    """Write an array of a shape and dtype at random, now and then with an unusual layout."""
    shapes = BIG if random.random() < 0.06 else SHAPES
    shape = random.choice(shapes)
    dtype = random.choice(DTYPES)
    factor = random.randrange(1, 7)
    text = f"data({shape}, {dtype}, {factor})"
    can_be_unusual = shape and shape not in BIG
    if can_be_unusual and random.random() < 0.15:
        layout = random.choice(LAYOUTS)
        return layout.replace("{}", text)
    return text


def _split_and_load(model: Model) -> None:
    """Divide an array of few rows, or none, over some devices."""
    random = model.random
    rows = random.choice((0, 1, 2, 5, 9))
    shape_of_row = random.choice(((), (2,), (1, 3, 3)))
    devices = model.some_devices()
    device_texts = ", ".join(f"devices[{device}]" for device in devices)
    array_text = f"data({(rows, *shape_of_row)}, {random.choice(DTYPES)}, 3)"
    model.make_on(f"split_and_load({array_text}, [{device_texts}])", devices)


def _launch(model: Model) -> None:
    """Launch a function of one to three small values of a device."""
    first = model.pick_array(lambda value: value.content.size < SMALL)

    def is_small_and_beside_first(value: Value) -> bool:
        return value.device == first.device and _size(value.content) < SMALL

    further_count = model.random.randrange(3)
    further_arguments = [model.pick(is_small_and_beside_first) for _ in range(further_count)]
    arguments = [first, *further_arguments]
    function = draw_function(model.random, arguments)
    if model.random.random() < UNIT:
        function = f"ops.as_unit({function})"
    argument_texts = ", ".join(argument.text for argument in arguments)
    model.make(f"launch({function}, {argument_texts})", first.device, *arguments)


def _late(model: Model, x: Value | None = None) -> Value:
    """Launch slow work that returns a copy of `x`, or of an array that is picked."""
    x = x or model.pick_floats()
    matrix = f"backend.asarray(np.eye(300, dtype=np.{x.content.dtype}), devices[{x.device}])"
    return model.make(f"launch(late, {x.text}, {matrix})", x.device, x)


def _view(model: Model, x: Value | None = None) -> Value:
    """Launch `flatten` or `split`, whose result may share memory with its argument `x`."""
    x = x or model.pick_floats(lambda value: value.content.ndim > 0)
    size = x.content.size
    if x.content.ndim > 1 or size < 2:
        return model.make(f"launch(ops.flatten, {x.text})", x.device, x)
    first_length = model.random.randrange(1, size)
    lengths = [first_length, size - first_length]
    return model.make(f"launch(ops.split, {x.text}, {lengths})", x.device, x)


def _copy(model: Model) -> None:
    """Copy a value to any device."""
    x = model.pick()
    device = model.random.randrange(model.devices)
    model.make(f"copy_to({x.text}, devices[{device}])", device, x)


def _read_and_overwrite(model: Model) -> None:
    """Read a value on a device that is busy, and overwrite that value meanwhile.

    What is read is the value itself, or another one that shares its memory.
    """
    random = model.random
    out = model.pick(lambda value: _size(value.content) and model.consumable(value.content))
    is_array = isinstance(out.content, np.ndarray) and out.content.ndim > 0
    if is_array and out.content.dtype.kind == "f":
        _view(model, out)
    reads_where_it_lies = random.random() < 0.4
    device = out.device if reads_where_it_lies else random.randrange(model.devices)
    if random.random() < 0.8:
        _keep_busy(model, device)
    overlapping = [
        value for value in model.values() if not model.consumable(out.content, value.content)
    ]
    most_reads = random.randint(1, 2)
    for x in random.sample(overlapping, min(len(overlapping), most_reads)):
        is_small_and_here = x.device == device and _size(x.content) < SMALL
        if is_small_and_here and random.random() < 0.5:
            function = draw_function(random, [x])
            model.make(f"launch({function}, {x.text})", device, x)
        else:
            model.make(f"copy_to({x.text}, devices[{device}])", device, x)
    if _can_be_summed(model, out) and random.random() < 0.4:
        _allreduce(model, out)
    else:
        _overwrite(model, out)


def _keep_busy(model: Model, device: int) -> None:
    """Add slow work to a device's queue for computation, and to that for copies if it has one."""
    x = model.make(f"asarray(data((3,), np.float32, 2), devices[{device}])", device)
    late = _late(model, x)
    model.make(f"copy_to({late.text}, devices[{device}])", device, late)


def _overwrite(model: Model, out: Value | None = None) -> None:
    """Copy a value of the same shapes and dtypes into the memory of `out`."""
    out = out or model.pick(lambda value: model.consumable(value.content))
    sources = [
        value for value in _alike(model, out) if model.consumable(out.content, value.content)
    ]
    if sources and model.random.random() < 0.5:
        source = model.random.choice(sources)
    else:
        device = model.random.randrange(model.devices)
        source = model.make(f"asarray({_like(out.content)}, devices[{device}])", device)
    call = f"copy_to({source.text}, devices[{out.device}], out={out.text})"
    model.make(call, out.device, source, consumes=[out])


def _can_be_summed(model: Model, value: Value) -> bool:
    """Return whether `allreduce` takes a value: it consumes it, and sums no bool."""
    has_bool = any(x.dtype == bool for x in tree_leaves(value.content))
    return not has_bool and model.consumable(value.content)


def _allreduce(model: Model, first: Value | None = None) -> None:
    """Sum a value with one value of each of some other devices.

    The other values exist already, are copies of the first one, or are loaded anew.
    """
    random = model.random
    first = first or model.pick(lambda value: _can_be_summed(model, value))
    terms = [first]
    other_devices = [device for device in range(model.devices) if device != first.device]
    fewest = min(1, len(other_devices))
    count = random.randint(fewest, len(other_devices))
    for device in random.sample(other_devices, count):
        contents_of_terms = [term.content for term in terms]
        values_there = [value for value in _alike(model, first) if value.device == device]
        candidates = [
            value for value in values_there if model.consumable(*contents_of_terms, value.content)
        ]
        if candidates:
            term = random.choice(candidates)
        elif random.random() < 0.5:
            term = model.make(f"copy_to({first.text}, devices[{device}])", device, first)
        else:
            term = model.make(f"asarray({_like(first.content)}, devices[{device}])", device)
        terms.append(term)
    random.shuffle(terms)
    model.allreduce(terms)


def _read(model: Model) -> None:
    model.read(model.pick())


def _read_by_host(model: Model) -> None:
    """Read a copy that `to_host` makes, on the queue that computes.

    Only `waitall` waits for such a copy from a GPU.
    """
    x = model.pick_array()
    copy = model.make(f"launch(ops.to_host, {x.text})", x.device, x)
    model.do("waitall()")
    model.read(copy)
    model.drop(copy)


def _count(model: Model) -> None:
    """Count right answers among many classes; some labels name a class that does not exist."""
    random = model.random
    device = random.randrange(model.devices)
    classes = random.choice((5, 300))
    # Row i has its largest score at the i-th class of the last five.
    scores = model.make(
        f"asarray(np.eye(5, {classes}, {classes - 5}, np.float32), devices[{device}])", device
    )
    classes_of_rows = []
    for row in range(5):
        right_class = classes - 5 + row
        classes_of_rows.append(random.choice((right_class, 256 + row, row, -1)))
    dtype = random.choice(("np.int32", "np.int64", "np.uint8"))
    labels_text = f"np.array({classes_of_rows}).astype({dtype})"
    labels = model.make(f"asarray({labels_text}, devices[{device}])", device)
    launch = f"backend.launch(ops.count_correct, {scores.text}, {labels.text})"
    model.read_from(f"int(backend.to_numpy({launch}))", scores, labels)


def _wait(model: Model) -> None:
    """Wait for a value, or for all."""
    if model.random.random() < 0.2:
        model.do("waitall()")
    else:
        x = model.pick()
        model.do(f"wait({x.text})", x, waits=True)


def _forget(model: Model) -> None:
    model.drop(model.pick())


def _alike(model: Model, value: Value) -> list[Value]:
    """List the values of the program that have the shapes and dtypes of a value."""
    shapes_and_dtypes = _like(value.content)
    return [other for other in model.values() if _like(other.content) == shapes_and_dtypes]


def _like(content: Content) -> str:
    """Write a new array with the shape and dtype of `content`, or a tuple of such arrays."""
    if isinstance(content, tuple):
        return tuple_text([_like(item) for item in content])
    dtype = "bool" if content.dtype == bool else f"np.{content.dtype}"
    return f"data({content.shape}, {dtype}, 3)"


def _size(content: Content) -> int:
    """Return the number of elements in all arrays of a content."""
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
