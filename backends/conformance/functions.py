"""Random functions to be launched, and what training does.

A function is a composition of the ops, and returns arrays, arguments, or tuples of either. Training
is values and gradients, their sums over devices, and steps of descent.
"""

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import numpy as np

from backends.conformance.model import Model, UnsuitableError, Value, tuple_text
from backends.numpy import ops as numpy_ops

Source = tuple[str, Any]
"""An array as a function's text writes it, and its content on the reference."""

FLOATS = ("np.float32", "np.float32", "np.float64")
NETWORKS = {
    "lambda p, x, y: ops.cross_entropy(ops.add(ops.matmul(ops.flatten(ops.avg_pool2d(ops.relu("
    "ops.conv2d(x, p[0], p[1])), 2)), p[2]), p[3]), y)": ((2, 1, 3, 3), (2,), (8, 3), (3,)),
    "lambda p, x, y: ops.cross_entropy(ops.add(ops.matmul(ops.flatten(x), p[0]), p[1]), y)": (
        (36, 3),
        (3,),
    ),
    "lambda p, x, y: ops.total(ops.multiply(ops.matmul(ops.relu(ops.matmul(ops.flatten(x), "
    "ops.flatten(p[0]))), p[1]), "
    "0.5))": ((36, 2, 3), (6, 4)),
}
"""Functions of parameters, images (n, 1, 6, 6) and labels, and the shapes of their parameters."""


def draw_function(random: Random, arguments: Sequence[Value]) -> str:
    """Return the text of a lambda that takes these arguments, called `a`, `b` and so on."""
    content_of = {chr(ord("a") + number): value.content for number, value in enumerate(arguments)}
    inputs: list[Source] = []
    for name, content in content_of.items():
        inputs += _leaves(name, content)
    computed: list[Source] = []
    for _ in range(random.randrange(4)):
        floats = [source for source in (*inputs, *computed) if _is_finite_float(source)]
        if not floats:
            break
        source = random.choice(floats)
        applications = list(_applications(random, source, floats, inputs))
        text = random.choice(applications)
        with np.errstate(all="ignore"):
            content = eval(text, {"ops": numpy_ops}, content_of)
        # Items of a tuple are arrays themselves.
        computed += _leaves(text, content)
    candidates = computed or inputs
    count = min(len(candidates), random.choice((1, 1, 2, 3)))
    results = [text for text, _ in random.sample(candidates, count)]
    if random.random() < 0.25:
        input_text, _ = random.choice(inputs)
        results.append(input_text)
    if not results:
        raise UnsuitableError
    parameters = ", ".join(content_of)
    return f"lambda {parameters}: {_result_text(random, results)}"


def _result_text(random: Random, results: Sequence[str]) -> str:
    """Write the results as a function returns them: alone, in a tuple, or in nested tuples."""
    first, *further = results
    if not further and random.random() < 0.8:
        return first
    if len(results) > 2 and random.random() < 0.5:
        return tuple_text([first, tuple_text(further)])
    return tuple_text(results)


def _leaves(text: str, content: Any) -> Iterator[Source]:
    """Iterate over the arrays of a content, depth first, each with the text that names it."""
    if isinstance(content, tuple):
        for index, item in enumerate(content):
            yield from _leaves(f"{text}[{index}]", item)
    else:
        yield text, content


def _is_finite_float(source: Source) -> bool:
    """Return whether a source is an array of finite floating-point numbers."""
    _, content = source
    return content.dtype.kind == "f" and bool(np.isfinite(content).all())


def _applications(
    random: Random,
    source: Source,
    floats: list[Source],
    inputs: list[Source],
) -> Iterator[str]:
    """Iterate over texts that apply an op to an array.

    `floats` are the arrays that can be its second operand, and `inputs` those that can be labels.
    """
    text, x = source
    yield f"ops.add({text}, {random.choice((1.0, -2.0))})"
    yield f"ops.multiply({text}, {random.choice((2.0, -1.0, 0.5))})"
    yield f"ops.power({text}, {random.choice((0, 2, 2))})"
    yield f"ops.relu({text})"
    yield f"ops.total({text})"
    yield f"ops.zeros_like({text})"
    for axis in range(x.ndim):
        yield f"ops.total({text}, {axis})"
    if x.ndim:
        yield f"ops.flatten({text})"
        yield f"ops.flatten({text})"
    for operand, y in floats:
        if y.dtype != x.dtype:
            continue
        if y.shape in (x.shape, ()):
            op = random.choice(("add", "multiply"))
            yield f"ops.{op}({text}, {operand})"
        are_matrices = x.ndim == 2 and y.ndim == 2
        if are_matrices and x.size and x.shape[1] == y.shape[0]:
            yield f"ops.matmul({text}, {operand})"
        if x.ndim == 1 and y.ndim == 1:
            yield f"ops.concatenate(({text}, {operand}))"
    if x.ndim == 1 and x.size > 1:
        first_length = random.randrange(1, x.size)
        yield f"ops.split({text}, [{first_length}, {x.size - first_length}])"
    if x.ndim == 4 and x.size and min(x.shape[2:]) >= 2:
        yield f"ops.avg_pool2d({text}, 2)"
    if x.ndim == 2 and x.size:
        for name, labels in inputs:
            if _are_labels(labels, x):
                yield f"ops.cross_entropy({text}, {name})"


def _are_labels(labels: np.ndarray, scores: np.ndarray) -> bool:
    """Return whether an array holds the number of a class for each row of scores."""
    rows, classes = scores.shape
    if labels.dtype.kind not in "iu" or labels.shape != (rows,):
        return False
    return bool((labels >= 0).all() and (labels < classes).all())


def draw_value_and_grad(model: Model) -> None:
    """Differentiate a sum of terms by the parameters that they depend on.

    A parameter may be used twice or not at all, and may also be passed as a constant.
    """
    random = model.random
    first = model.pick_floats(lambda value: value.content.size)

    def suits(value: Value) -> bool:
        content = value.content
        is_alike = value.device == first.device and content.dtype == first.content.dtype
        return bool(content.size) and is_alike

    further_parameters = [model.pick_floats(suits) for _ in range(random.randrange(4))]
    parameters = [first, *further_parameters]
    constant = random.choice(parameters) if random.random() < 0.4 else None
    function = f"ops.value_and_grad({_loss(random, parameters, constant)})"
    parameters_text = tuple_text([parameter.text for parameter in parameters])
    call = f"launch({function}, {parameters_text})"
    if constant is not None:
        call = f"launch({function}, {parameters_text}, {constant.text})"
    model.make(call, first.device, *parameters)


def _loss(random: Random, parameters: Sequence[Value], constant: Value | None) -> str:
    """Return the text of a lambda of parameters `p`, and of a constant `x` if there is one."""
    # Most parameters, at least one, and now and then one of them twice.
    used_numbers = [number for number in range(len(parameters)) if random.random() < 0.8] or [0]
    repeated_count = random.choice((0, 0, 0, 1))
    used_numbers += random.choices(used_numbers, k=repeated_count)
    value_of = {f"p[{number}]": value for number, value in enumerate(parameters)}
    signature = "p"
    if constant is not None:
        value_of["x"] = constant
        signature = "p, x"
    first_term, *further_terms = [
        _term(random, f"p[{number}]", value_of) for number in used_numbers
    ]
    total = first_term
    for term in further_terms:
        total = f"ops.add({total}, {term})"
    return f"lambda {signature}: {total}"


def _term(random: Random, text: str, value_of: dict[str, Value]) -> str:
    """Write an expression of one number that depends on the parameter called `text`.

    `value_of` holds all values of the function, by the text that names them.
    """
    shape = value_of[text].content.shape
    operands = [name for name, value in value_of.items() if value.content.shape == shape]
    other = random.choice(operands)
    terms = [
        text,
        f"ops.multiply({text}, {other})",
        f"ops.add({text}, {other})",
        f"ops.multiply({text}, 2.0)",
    ]
    if value_of[text].exact:
        terms.append(f"ops.relu({text})")
    exponent = random.choice((0, 1, 2, 2))
    terms.append(f"ops.power({text}, {exponent})")
    if shape:
        terms.append(f"ops.add(ops.flatten({text}), ops.flatten({other}))")
        terms.append(f"ops.multiply(ops.flatten({text}), ops.flatten({other}))")
        terms.append(f"ops.flatten({text})")
    if len(shape) == 2 and shape[0] == shape[1]:
        terms.append(f"ops.matmul({text}, {other})")
    if len(shape) == 4 and min(shape[2:]) >= 2:
        terms.append(f"ops.avg_pool2d({text}, 2)")
    return f"ops.total({random.choice(terms)})"


def draw_training(model: Model) -> None:
    """Train a network on some devices: compute gradients there, sum them, and take a step.

    Gradients are summed as one tuple, or one parameter after the other.
    """
    random = model.random
    devices = model.some_devices(3)
    network, shapes = random.choice(list(NETWORKS.items()))
    dtype = random.choice(FLOATS)
    rows = random.choice((1, 5, len(devices)))
    device_texts = ", ".join(f"devices[{device}]" for device in devices)
    images = model.make_on(
        f"split_and_load(data(({rows}, 1, 6, 6), {dtype}, 5), [{device_texts}])", devices
    )
    label_dtype = random.choice(("np.uint8", "np.int32", "np.int64"))
    classes = f"np.arange({rows}, dtype={label_dtype}) % 3"
    labels = model.make_on(f"split_and_load({classes}, [{device_texts}])", devices)
    arrays = tuple_text([f"data({shape}, {dtype}, 4) * 0.25" for shape in shapes])
    parameters = [model.make(f"asarray({arrays}, devices[{device}])", device) for device in devices]
    gradients = []
    for old, shard, shard_labels in zip(parameters, images, labels, strict=True):
        call = (
            f"launch(ops.value_and_grad({network}), {old.text}, {shard.text}, {shard_labels.text})"
        )
        value_and_gradients = model.make(call, old.device, old, shard, shard_labels)
        gradients.append(value_and_gradients.item(1))
    if random.random() < 0.5:
        for old, total in zip(parameters, model.allreduce(gradients), strict=True):
            _take_step(model, old, total.text, [total])
    else:
        totals_by_parameter = _sums_by_parameter(model, gradients, len(shapes))
        for old, *totals in zip(parameters, *totals_by_parameter, strict=True):
            text = tuple_text([total.text for total in totals])
            _take_step(model, old, text, totals)


def _sums_by_parameter(model: Model, gradients: Sequence[Value], count: int) -> list[list[Value]]:
    """Sum the devices' gradients by one parameter after the other.

    Return for each of `count` parameters the sums, one a device. The last gradients are summed
    first, because they are ready first.
    """
    sums_from_last = []
    for index in range(-1, -1 - count, -1):
        terms = [of_device.item(index) for of_device in gradients]
        sums_from_last.append(model.allreduce(terms))
    return sums_from_last[::-1]


def _take_step(model: Model, old: Value, gradients_text: str, gradients: Sequence[Value]) -> None:
    """Update a device's parameters by gradients, whose tuple the program writes as a text."""
    call = f"launch(ops.sgd, {old.text}, {gradients_text}, 0.25)"
    model.make(call, old.device, consumes=[old, *gradients])


WIDE = "lambda p, x: ops.total(ops.multiply(ops.add(ops.matmul(x, p[0]), ops.flatten(p[1])), x))"


def draw_early_sums(model: Model) -> None:
    """Sum the gradients of a wide network one by one, mostly the last first.

    A sum may overwrite memory that earlier gradients still need.
    """
    random = model.random
    devices = model.some_devices(3)
    gradients = []
    for device in devices:
        device_text = f"devices[{device}]"
        x = model.make(f"asarray(np.eye(300, dtype=np.float32), {device_text})", device)
        arrays = "(data((300, 300), np.float32, 2), data((300, 30, 10), np.float32, 5))"
        parameters = model.make(f"asarray({arrays}, {device_text})", device)
        call = f"launch(ops.value_and_grad({WIDE}), {parameters.text}, {x.text})"
        value_and_gradients = model.make(call, device, parameters, x)
        gradients.append(value_and_gradients.item(1))
    indices = random.choice(((1, 0), (-1, -2), (1,), (0, 1)))
    for index in indices:
        terms = [of_device.item(index) for of_device in gradients]
        for total in model.allreduce(terms):
            if random.random() < 0.5:
                model.read(total)


def draw_steps(model: Model) -> None:
    """Take a step with 1 to 70 parameters; the first gradient may be NaN."""
    random = model.random
    device = random.randrange(model.devices)
    shape = random.choice(((), (3,), (2, 3)))
    dtype = random.choice((*FLOATS, "(np.float32, np.float64)[k % 2]"))
    factor = random.choice(("", "", " * (np.nan if k == 0 else 1)"))
    has_nan = factor != ""
    count = random.choice((1, 2, 5, 45, 52, 61, 70))

    def load(array_text: str) -> Value:
        arrays = f"tuple(np.array({array_text}, {dtype}) for k in range({count}))"
        return model.make(f"asarray({arrays}, devices[{device}])", device)

    old = load(f"data({shape}, {dtype}, k % 5 + 1)")
    gradients = load(f"data({shape}, {dtype}, 3){factor}")
    if not has_nan and random.random() < 0.4:
        call = f"launch(ops.sgd, {old.text}, {gradients.text}, 0.5)"
        model.make(call, device, consumes=[old, gradients])
        return
    guard = model.make(f"asarray(np.ones(1, np.float32), devices[{device}])", device)
    call = f"launch(ops.sgd_while_finite, {old.text}, {gradients.text}, 0.5, {guard.text})"
    model.make(call, device, guard, consumes=[old, gradients])
