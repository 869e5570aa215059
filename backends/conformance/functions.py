"""Random functions to be launched, and what training does.

A function is a composition of the ops, and returns arrays, arguments, or tuples of either. Training
is values and gradients, their sums over devices, and steps of descent.
"""

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, TypeAlias

import numpy as np

from backends.conformance.model import Model, UnsuitableError, Value, tuple_text
from backends.numpy import ops as numpy_ops

Source: TypeAlias = tuple[str, Any]
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
    """Draw a function of such arguments, as the text of a lambda."""
    scope = {chr(ord("a") + number): value.content for number, value in enumerate(arguments)}
    inputs: list[Source] = []
    for name, content in scope.items():
        inputs += _leaves(name, content)
    computed: list[Source] = []
    for _ in range(random.randrange(4)):
        floats = [source for source in (*inputs, *computed) if _is_finite_float(source)]
        if not floats:
            break
        source = random.choice(floats)
        text = random.choice(list(_applications(random, source, floats, inputs)))
        with np.errstate(all="ignore"):
            content = eval(text, {"ops": numpy_ops}, scope)
        # Items of a tuple are arrays themselves.
        computed += _leaves(text, content)
    candidates = computed or inputs
    count = min(len(candidates), random.choice((1, 1, 2, 3)))
    results = [text for text, _ in random.sample(candidates, count)]
    if random.random() < 0.25:
        results.append(random.choice(inputs)[0])
    if not results:
        raise UnsuitableError
    if len(results) == 1 and random.random() < 0.8:
        body = results[0]
    elif len(results) > 2 and random.random() < 0.5:
        body = f"({results[0]}, ({', '.join(results[1:])}))"
    else:
        body = f"({', '.join(results)},)"
    return f"lambda {', '.join(scope)}: {body}"


def _leaves(text: str, content: Any) -> Iterator[Source]:
    """Iterate over the arrays of a content, depth first."""
    if isinstance(content, tuple):
        for index, item in enumerate(content):
            yield from _leaves(f"{text}[{index}]", item)
    else:
        yield text, content


def _is_finite_float(source: Source) -> bool:
    _, content = source
    return content.dtype.kind == "f" and bool(np.isfinite(content).all())


def _applications(
    random: Random,
    source: Source,
    floats: list[Source],
    inputs: list[Source],
) -> Iterator[str]:
    """Iterate over the ops that can be applied to an array, with others of the same function."""
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
    for name, y in floats:
        if y.dtype != x.dtype:
            continue
        if y.shape in (x.shape, ()):
            yield f"ops.{random.choice(('add', 'multiply'))}({text}, {name})"
        if x.ndim == y.ndim == 2 and x.shape[1] == len(y) and 0 not in x.shape:
            yield f"ops.matmul({text}, {name})"
        if x.ndim == y.ndim == 1:
            yield f"ops.concatenate(({text}, {name}))"
    if x.ndim == 1 and x.size > 1:
        cut = random.randrange(1, x.size)
        yield f"ops.split({text}, [{cut}, {x.size - cut}])"
    if x.ndim == 4 and x.size and min(x.shape[2:]) >= 2:
        yield f"ops.avg_pool2d({text}, 2)"
    if x.ndim == 2 and x.size:
        for name, labels in inputs:
            if _are_labels(labels, x):
                yield f"ops.cross_entropy({text}, {name})"


def _are_labels(labels: np.ndarray, scores: np.ndarray) -> bool:
    """Return whether an array has a class for each row of scores."""
    if labels.dtype.kind not in "iu" or labels.shape != scores.shape[:1]:
        return False
    return bool((labels >= 0).all() and (labels < scores.shape[1]).all())


def draw_value_and_grad(model: Model) -> None:
    """Differentiate a sum over some of the parameters.

    Some of these are shared, unused, or among the further arguments.
    """
    random = model.random
    first = model.pick_floats(lambda value: value.content.size)

    def suits(value: Value) -> bool:
        content = value.content
        is_alike = value.device == first.device and content.dtype == first.content.dtype
        return bool(content.size) and is_alike

    parameters = [first, *(model.pick_floats(suits) for _ in range(random.randrange(4)))]
    further = [random.choice(parameters)] if random.random() < 0.4 else []
    loss = _loss(random, parameters, further)
    texts = [
        f"ops.value_and_grad({loss})",
        tuple_text([parameter.text for parameter in parameters]),
        *(argument.text for argument in further),
    ]
    model.make(f"launch({', '.join(texts)})", first.device, *parameters)


def _loss(random: Random, parameters: Sequence[Value], further: Sequence[Value]) -> str:
    """Write a function of parameters `p`, and of a further argument `x` if there is one."""
    used = [number for number in range(len(parameters)) if random.random() < 0.8] or [0]
    used += random.choices(used, k=random.choice((0, 0, 0, 1)))
    named = {f"p[{number}]": value for number, value in enumerate(parameters)}
    named |= dict(zip("x", further, strict=False))
    body, *terms = (_term(random, f"p[{number}]", named) for number in used)
    for term in terms:
        body = f"ops.add({body}, {term})"
    return f"lambda p{', x' if further else ''}: {body}"


def _term(random: Random, text: str, named: dict[str, Value]) -> str:
    """Write one number that depends on a parameter."""
    shape = named[text].content.shape
    other = random.choice([name for name, value in named.items() if value.content.shape == shape])
    terms = [
        text,
        f"ops.multiply({text}, {other})",
        f"ops.add({text}, {other})",
        f"ops.multiply({text}, 2.0)",
    ]
    if named[text].exact:
        terms.append(f"ops.relu({text})")
    terms.append(f"ops.power({text}, {random.choice((0, 1, 2, 2))})")
    if shape:
        terms += [
            f"ops.{op}(ops.flatten({text}), ops.flatten({other}))" for op in ("add", "multiply")
        ]
        terms.append(f"ops.flatten({text})")
    if len(shape) == 2 and shape[0] == shape[1]:
        terms.append(f"ops.matmul({text}, {other})")
    if len(shape) == 4 and min(shape[2:]) >= 2:
        terms.append(f"ops.avg_pool2d({text}, 2)")
    return f"ops.total({random.choice(terms)})"


def draw_training(model: Model) -> None:
    """Train a network on some devices: gradients there, their sums, and a step.

    Gradients are summed as one tuple or one by one.
    """
    random = model.random
    devices = model.some_devices(3)
    network, shapes = random.choice(list(NETWORKS.items()))
    dtype = random.choice(FLOATS)
    rows = random.choice((1, 5, len(devices)))
    where = ", ".join(f"devices[{device}]" for device in devices)
    images = model.make_on(
        f"split_and_load(data(({rows}, 1, 6, 6), {dtype}, 5), [{where}])", devices
    )
    classes = f"np.arange({rows}, dtype={random.choice(('np.uint8', 'np.int32', 'np.int64'))}) % 3"
    labels = model.make_on(f"split_and_load({classes}, [{where}])", devices)
    arrays = tuple_text([f"data({shape}, {dtype}, 4) * 0.25" for shape in shapes])
    parameters = [model.make(f"asarray({arrays}, devices[{device}])", device) for device in devices]
    gradients = []
    for inputs in zip(parameters, images, labels, strict=True):
        texts = ", ".join(value.text for value in inputs)
        step = model.make(
            f"launch(ops.value_and_grad({network}), {texts})", inputs[0].device, *inputs
        )
        gradients.append(step.item(1))
    # For each device the values that hold the sums, and the sums as a text.
    summed: list[list[Value]]
    if random.random() < 0.5:
        summed = [[total] for total in model.allreduce(gradients)]
        texts_of_sums = [total.text for (total,) in summed]
    else:
        # The last ones are ready first.
        by_parameter = [
            model.allreduce([of_device.item(index) for of_device in gradients])
            for index in range(-1, -1 - len(shapes), -1)
        ]
        summed = [list(totals) for totals in zip(*reversed(by_parameter), strict=True)]
        texts_of_sums = [tuple_text([total.text for total in totals]) for totals in summed]
    for old, sums, text in zip(parameters, summed, texts_of_sums, strict=True):
        model.make(f"launch(ops.sgd, {old.text}, {text}, 0.25)", old.device, consumes=[old, *sums])


WIDE = "lambda p, x: ops.total(ops.multiply(ops.add(ops.matmul(x, p[0]), ops.flatten(p[1])), x))"


def draw_early_sums(model: Model) -> None:
    """Sum the gradients one by one, the last first.

    That may overwrite what earlier gradients still need.
    """
    random = model.random
    devices = model.some_devices(3)
    gradients = []
    for device in devices:
        where = f"devices[{device}]"
        x = model.make(f"asarray(np.eye(300, dtype=np.float32), {where})", device)
        arrays = "(data((300, 300), np.float32, 2), data((300, 30, 10), np.float32, 5))"
        parameters = model.make(f"asarray({arrays}, {where})", device)
        call = f"launch(ops.value_and_grad({WIDE}), {parameters.text}, {x.text})"
        gradients.append(model.make(call, device, parameters, x).item(1))
    for index in random.choice(((1, 0), (-1, -2), (1,), (0, 1))):
        for total in model.allreduce([of_device.item(index) for of_device in gradients]):
            if random.random() < 0.5:
                model.read(total)


def draw_steps(model: Model) -> None:
    """Take steps with 1 to 70 parameters, of which one gradient may be NaN."""
    random = model.random
    device = random.randrange(model.devices)
    shape = random.choice(((), (3,), (2, 3)))
    dtype = random.choice((*FLOATS, "(np.float32, np.float64)[k % 2]"))
    broken = random.choice(("", "", " * (np.nan if k == 0 else 1)"))
    count = random.choice((1, 2, 5, 45, 52, 61, 70))
    old, gradients = (
        model.make(
            f"asarray(tuple(np.array({text}, {dtype}) for k in range({count})), devices[{device}])",
            device,
        )
        for text in (f"data({shape}, {dtype}, k % 5 + 1)", f"data({shape}, {dtype}, 3){broken}")
    )
    if not broken and random.random() < 0.4:
        model.make(
            f"launch(ops.sgd, {old.text}, {gradients.text}, 0.5)", device, consumes=[old, gradients]
        )
        return
    guard = model.make(f"asarray(np.ones(1, np.float32), devices[{device}])", device)
    call = f"launch(ops.sgd_while_finite, {old.text}, {gradients.text}, 0.5, {guard.text})"
    model.make(call, device, guard, consumes=[old, gradients])
