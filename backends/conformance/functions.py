"""Draws functions to be launched: compositions of the ops, which return arrays, arguments, or tuples of either."""

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import numpy as np

from backends.conformance.model import UnsuitableError, Value
from backends.conformance.reference import REFERENCE_OPS


def draw_function(random: Random, arguments: Sequence[Value]) -> str:
    """Draw a function of such arguments, as the text of a lambda."""
    names = [chr(ord("a") + place) for place in range(len(arguments))]
    pool = [pair for name, value in zip(names, arguments, strict=True) for pair in _leaves(name, value.content)]
    scope = dict(zip(names, (value.content for value in arguments), strict=True))
    given = list(pool)
    made: list[tuple[str, Any]] = []
    for _ in range(random.randrange(4)):
        floats = [(text, x) for text, x in (*given, *made) if x.dtype.kind == "f" and np.isfinite(x).all()]
        if not floats:
            break
        source = random.choice(floats)
        applications = list(_applications(random, source, floats, given))
        text = random.choice(applications)
        with np.errstate(all="ignore"):
            content = eval(text, {"ops": REFERENCE_OPS}, scope)
        if isinstance(content, tuple):
            made += [(f"{text}[{place}]", item) for place, item in enumerate(content)]
        else:
            made.append((text, content))
    results = [text for text, _ in random.sample(made or given, min(len(made or given), random.choice((1, 1, 2, 3))))]
    if random.random() < 0.25:
        results.append(random.choice(given)[0])
    if not results:
        raise UnsuitableError
    if len(results) == 1 and random.random() < 0.8:
        body = results[0]
    elif len(results) > 2 and random.random() < 0.5:
        body = f"({results[0]}, ({', '.join(results[1:])}))"
    else:
        body = f"({', '.join(results)},)"
    return f"lambda {', '.join(names)}: {body}"


def _leaves(text: str, content: Any) -> Iterator[tuple[str, np.ndarray]]:
    if isinstance(content, tuple):
        for place, item in enumerate(content):
            yield from _leaves(f"{text}[{place}]", item)
    else:
        yield text, content


def _applications(
    random: Random, source: tuple[str, np.ndarray], floats: list[tuple[str, Any]], given: list[tuple[str, Any]]
) -> Iterator[str]:
    """Iterate over the ops that can be applied to an array."""
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
    for other, y in floats:
        if y.dtype != x.dtype:
            continue
        if y.shape in (x.shape, ()):
            yield f"ops.{random.choice(('add', 'multiply'))}({text}, {other})"
        if x.ndim == y.ndim == 2 and x.shape[1] == len(y) and 0 not in x.shape:
            yield f"ops.matmul({text}, {other})"
        if x.ndim == y.ndim == 1:
            yield f"ops.concatenate(({text}, {other}))"
    if x.ndim == 1 and x.size > 1:
        cut = random.randrange(1, x.size)
        yield f"ops.split({text}, [{cut}, {x.size - cut}])"
    if x.ndim == 4 and x.size and min(x.shape[2:]) >= 2:
        yield f"ops.avg_pool2d({text}, 2)"
    if x.ndim == 2 and x.size:
        for other, labels in given:
            if (
                labels.dtype.kind in "iu"
                and labels.shape == x.shape[:1]
                and (labels >= 0).all()
                and (labels < x.shape[1]).all()
            ):
                yield f"ops.cross_entropy({text}, {other})"
