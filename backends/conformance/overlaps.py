"""Draws calls that consume what overlaps: repeated values, swaps, and several views of one array.

They fail, or their result is as if the memories were different.
"""

from backends.conformance.model import Model, Value, tuple_text


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
    reads = swapped if model.consumable(one.content, other.content) else random.choice((swapped, new_pair))
    calls = [
        f"to_numpy(backend.copy_to({reads}, {device}, out={pair}))",
        f"to_numpy(backend.launch(ops.sgd, {pair}, {reads}, 0.5))",
        f"to_numpy(backend.launch(ops.sgd_while_finite, {pair}, {reads}, 0.5, {guard}))",
    ]
    if reads is not swapped:
        others = [place for place in range(model.devices) if place != one.device]
        terms = [pair, *(f"backend.asarray(({new}, {new}), devices[{place}])" for place in others)]
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
    first, last = (model.make(f"launch(ops.split, {x.text}, {cut})", x.device, x) for cut in ([most, 1], [1, most]))
    return first.item(0), last.item(1)


def _swapped(model: Model) -> tuple[Value, Value]:
    x = model.pick_floats()

    def is_alike(value: Value) -> bool:
        same = (value.device, value.content.shape, value.content.dtype) == (x.device, x.content.shape, x.content.dtype)
        return same and model.consumable(value.content, x.content)

    y = model.pick_floats(is_alike)
    return x, y
