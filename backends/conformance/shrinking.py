"""Makes a program shorter that a backend gets wrong."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from time import monotonic
from typing import Any

from backends.arrays import tree_leaves
from backends.conformance.model import tuple_text
from backends.conformance.programs import Program
from backends.conformance.running import Finding, expected_values

MAX_SECONDS = 45
MAX_ELEMENTS = 12
"""So many numbers of an array are written out."""
MAX_LEAVES = 6


def shrink(program: Program, finding: Finding, check: Callable[[Program], Finding | None]) -> tuple[Program, Finding]:
    """Return a shorter program in which the same is found; `check` runs one."""
    end = monotonic() + MAX_SECONDS
    progress = True
    while progress:
        progress = False
        for shorter in _shorter(program):
            if monotonic() > end:
                return program, finding
            found = check(shorter)
            if found and found.kind == finding.kind:
                program, finding, progress = shorter, found, True
                break
    return program, finding


def _shorter(program: Program) -> Iterator[Program]:
    """Iterate over programs with fewer statements, or simpler ones, those first that lack most."""
    threads = program.threads()
    if len(threads) > 1:
        for places in threads:
            alone = tuple(replace(program.statements[place], thread=0) for place in places)
            yield replace(program, statements=alone)
    # The last statement of each thread waits for all.
    removable = sorted(place for places in threads for place in places[:-1])
    length = len(removable) // 2
    while length:
        for start in range(len(removable) - length, -1, -length):
            yield program.without(removable[start : start + length])
        length //= 2
    values = expected_values(program)
    for place, statement in enumerate(program.statements):
        if statement.device is None or statement.uses == ():
            continue
        (name,) = statement.defines
        leaves = list(tree_leaves(values[name]))
        if len(leaves) <= MAX_LEAVES and all(leaf.size <= MAX_ELEMENTS or leaf.dtype.kind == "f" for leaf in leaves):
            source = f"{name} = backend.asarray({_literal(values[name])}, devices[{statement.device}])"
            simple = replace(statement, source=source, uses=(), fails="", stand_in="")
            yield replace(program, statements=(*program.statements[:place], simple, *program.statements[place + 1 :]))


def _literal(content: Any) -> str:
    if isinstance(content, tuple):
        return tuple_text([_literal(item) for item in content])
    dtype = "bool" if content.dtype == bool else f"np.{content.dtype}"
    if not content.size:
        return f"np.zeros({content.shape}, {dtype})"
    if content.size > MAX_ELEMENTS:
        # Other numbers do as well, for the reference is computed anew.
        return f"data({content.shape}, {dtype}, 3)"
    return f"np.array({content.tolist()}, {dtype})".replace("nan", "np.nan")
