"""Short names for kernels, which stay distinct: the function, with the most informative template arguments.

A kernel's full name has up to 10,000 characters. Its short one leaves out the return type, parameters, namespaces, and
what PyTorch and compilers wrap around a functor. It depends only on the full one, so that traces can be compared; only
if kernels of a trace would share one, each gets what distinguishes it. A name that is not understood stays as it is,
so that no part of a name passes for the whole.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeAlias

import pycxxfilt

ELLIPSIS = "…"
LENGTH = 72
"""Template arguments are added up to this many characters."""
LONGEST_WORD = 96
"""An identifier that is longer was generated, such as those of Tensile, and is cut down at its `_`."""
WRAPPERS = {
    "AUnaryFunctor": 3,
    "BUnaryFunctor": 3,
    "BinaryFunctor": 3,
    "__nv_dl_tag": 1,
    "__nv_dl_wrapper_t": 0,
    "__nv_hdl_wrapper_t": 3,
    "func_wrapper_t": 1,
    "gpu_kernel_impl": 0,
    "gpu_kernel_impl_nocast": 0,
}
"""What stands around that which says what is computed, and its place among the arguments."""
GENERIC = re.compile(r"Params|apply|combine|dispatch|exists|impl|kernel|launch|run|type|value|value_type|\uE06F.*")
"""Names that say nothing without the class or namespace around them; the last are operators, as below."""
PLUMBING = re.compile(r"(?:[Aa]rray|(?:Load|Store)With(?:out)?Cast|(?:Trivial)?OffsetCalculator)$")
"""PyTorch's template arguments that say least."""
BUILT_IN = re.compile(
    r"(?:(?:un)?signed|bool|true|false|char|short|int|long|float|double|half|void|auto|const|[\s*&])+$|[^A-Za-z_]"
)

# Brackets and symbols that enclose nothing are moved to characters that stand for nothing else.
HIDDEN = {chr(code): chr(0xE000 + code) for code in range(32, 127)}
SHOWN = {ord(hidden): symbol for symbol, hidden in HIDDEN.items()}
SYMBOLS = re.compile(
    r"\boperator(?:\(\)|\[\]|[^\w\s()]+(?= ?[<(]|$)| [\w:]+[*&]*)|(?<!operator\(\))(?<=\))<[<=]?|(?<= )<[<=]?(?= )|->",
    re.ASCII,
)
CALL = "".join(map(HIDDEN.__getitem__, "operator()"))
BRACKET = re.compile(r"[][(){}<>]")
OPENED_BY = {")": "(", ">": "<", "}": "{", "]": "["}
# Of a masked text: what stands in outer brackets are zeros there.
WORD = r"[~]?[A-Za-z_$@\uE000-\uE07F][\w$@.\uE000-\uE07F]*(?:\[\0*\])*"
UNNAMED = r"\{\0*\}|<\0*>|`[^`']*'|'[a-z]+\d*'"
OUTER = rf"(?:{UNNAMED}|\(\0*\)|{WORD})(?: ?<\0*>)?(?:\(\0*\)(?: const| volatile| noexcept| ?&&?)*)?::"
NAME = rf"(?:::)?((?:{OUTER})*(?:{UNNAMED}|{WORD})(?: ?<\0*>)?)"
COMPONENT = re.compile(rf"({UNNAMED}|\(\0*\)|{WORD})(?: ?(<\0*>))?[^:]*(?:::|$)")
QUALIFIERS = r"((?:[ &*]|const|volatile|noexcept|\.\w+)*)"
FUNCTION = re.compile(rf"(?:(?:.*? )?{NAME}(\(\0*\))|(?:void |typeinfo name for )?{NAME}){QUALIFIERS}(?:\[\0*\])*")
ARGUMENT = re.compile(rf"&?{NAME}{QUALIFIERS}")
SCOPES = re.compile(r"(?:\(anonymous \w+\)::|<unnamed>::|\b[A-Za-z_]\w*::)+")


TAIL, AROUND, SCOPE, PARAMETERS = -1, -2, -3, -4
"""What is shown only if need be: what follows in the scope, a wrapper, namespaces, a function's parameters."""
Path: TypeAlias = tuple[int, ...]
"""The way from a name to one of its parts: places of template arguments, at last perhaps one of the four above."""


class _Node(NamedTuple):
    """A function or class with its template arguments; without a label, an identifier's words."""

    label: str
    arguments: "tuple[_Node, ...]" = ()
    after: str = ""
    hidden: Mapping[int, str] = {}

    def parts(self, path: Path = ()) -> Iterator[tuple[Path, str]]:
        """Give what the name consists of, an outer part before those within."""
        yield path, self.label + self.after
        yield from (((*path, place), text) for place, text in self.hidden.items() if text)
        for place, one in enumerate(self.arguments):
            yield from one.parts((*path, place))


def short_names(full_names: Iterable[str]) -> dict[str, str]:
    """Return a short name for each distinct full name, no two the same.

    Mangled names are demangled. A name that is no C++ function's, and one that is short already, stays as it is.
    """
    nodes = {full: _node_of(full) for full in sorted(set(full_names))}
    shown = {full: _telling(node) for full, node in nodes.items()}
    short = {full: _written(node, shown[full]) for full, node in nodes.items()}
    for group in _shared(short):
        parts = {full: dict(nodes[full].parts()) for full in group}
        _tell_apart(group, parts, sorted({path for own in parts.values() for path in own}, key=_remoteness), shown)
        short |= {full: _written(nodes[full], shown[full]) for full in group}
    # Marks of omission may still coincide, and a short name may be another kernel's full one.
    while groups := _shared(short):
        short |= {full: full for group in groups for full in group}
    return short


def _shared(short: Mapping[str, str]) -> list[list[str]]:
    groups = defaultdict(list)
    for full, name in short.items():
        groups[name].append(full)
    return [group for group in groups.values() if len(group) > 1]


def _tell_apart(
    group: Sequence[str], parts: Mapping[str, Mapping[Path, str]], paths: Sequence[Path], shown: Mapping[str, set[Path]]
) -> None:
    """Add to what is shown the first of some parts in which a group differs, then likewise for those still alike."""
    for place, path in enumerate(paths if len(group) > 1 else ()):
        alike = defaultdict(list)
        for full in group:
            alike[parts[full].get(path)].append(full)
        if len(alike) > 1:
            for full in group:
                if path in parts[full]:
                    shown[full].update(path[:depth] for depth in range(len(path) + 1))
            for some in alike.values():
                _tell_apart(some, parts, paths[place + 1 :], shown)
            return


def _remoteness(path: Path) -> tuple[object, ...]:
    return path[-1:] == (PARAMETERS,), bool(path) and path[-1] < 0, len(path), [abs(place) for place in path]


def _node_of(full: str) -> _Node:
    """Return what a kernel's full name says; all of it in one label if it is no C++ function, or was shortened."""
    text = full
    if full.startswith("_Z"):
        with suppress(ValueError):
            text = pycxxfilt.itanium_demangle(full.removesuffix(".kd")) or full
    text = SYMBOLS.sub(lambda match: "".join(HIDDEN.get(one, one) for one in match[0]), text)
    try:
        found = None if ELLIPSIS in full else FUNCTION.fullmatch(_masked(text))
        node = _named(text, found, 1 if found[1] else 3) if found else _Node(full)
    except (_MismatchError, RecursionError):
        return _Node(full)
    if len(node.label) > LONGEST_WORD and found:
        return _Node("", tuple(map(_Node, node.label.split("_"))))
    return node


class _MismatchError(ValueError):
    """A bracket without its counterpart, or one that may be `less than`."""


def _masked(text: str) -> str:
    """Put zeros for all that stands in a text's outer brackets."""
    opened: list[str] = []
    masked, done = [], 0
    for match in BRACKET.finditer(text):
        bracket, place = match[0], match.start()
        if bracket not in OPENED_BY:
            if not opened:
                masked.append(text[done : place + 1])
                done = place + 1
            opened.append(bracket)
        # Only `>` may be `greater than`; the other brackets always close something.
        elif bracket != ">" or opened[-1:] == ["<"]:
            if not opened or opened.pop() != OPENED_BY[bracket]:
                raise _MismatchError
            if not opened:
                masked.append("\0" * (place - done))
                done = place
    if opened:
        raise _MismatchError
    return "".join(masked) + text[done:]


def _named(text: str, found: "re.Match[str]", group: int, after: str = "") -> _Node:
    """Return what the name says that was found in a text."""
    parts = [
        (text[slice(*one.span(1))], text[one.start(2) + 1 : one.end(2) - 1] if one[2] else "")
        for one in COMPONENT.finditer(found.string, *found.span(group))
    ]
    last = len(parts) - 1
    # What a function or a functor holds is called by the function's name.
    while last > 0 and parts[last][0].startswith(("{", "<", "'", "$_", CALL)):
        last -= 1
    label, inside = parts[last]
    parameters = text[slice(*found.span(2))] if group == 1 and found.re is FUNCTION else ""
    hidden: dict[int, str] = {
        TAIL: "".join(f"::{_readable(name)}" for name, _ in parts[last + 1 :] if name != CALL),
        AROUND: "",
        SCOPE: "".join(f"{name}{inside and f'<{_readable(inside)}>'}::" for name, inside in parts[:last]).translate(
            SHOWN
        ),
        PARAMETERS: _readable(parameters),
    }
    arguments = list(_divided(inside))
    if (place := WRAPPERS.get(label, len(arguments))) < len(arguments):
        node = _argument(arguments[place])
        own = ", ".join((*arguments[:place], "\0", *arguments[place + 1 :]))
        around = f"{label}<{_readable(own)}>".replace("\0", node.hidden.get(AROUND) or "\0")
        hidden = {**hidden, **node.hidden, AROUND: around, TAIL: node.hidden.get(TAIL, "") + hidden[TAIL]}
        return node._replace(after=node.after + after, hidden=hidden)
    if last and GENERIC.fullmatch(label) and parts[last - 1][0][0] not in "(<`":
        outer, around = parts[last - 1]
        if around and not inside:
            label, arguments, after = outer, list(_divided(around)), f"::{label}{after}"
        else:
            label = f"{outer}::{label}"
    return _Node(label.translate(SHOWN).removesuffix(".kd"), tuple(map(_argument, arguments)), after, hidden)


def _argument(text: str) -> _Node:
    found = ARGUMENT.fullmatch(_masked(text))
    return _named(text, found, 1, found[2]) if found else _Node(_readable(text))


def _divided(text: str) -> Iterator[str]:
    """Give the parts of a text between its outer commas."""
    begin = 0
    for part in _masked(text).split(",") if text else ():
        yield text[begin : begin + len(part)].strip()
        begin += len(part) + 1


def _readable(text: str) -> str:
    return SCOPES.sub("", text.translate(SHOWN)).replace("> >", ">>")


def _telling(node: _Node) -> set[Path]:
    """Choose what to show: classes before numbers, the outer before the inner, as long as there is room."""
    choices = sorted(_choices(node))
    shown = {(), *(path for _, _, path in choices[:1])}
    is_full = {True: False, False: False}
    for _, is_plain, path in choices[1:]:
        # What is in a node that is left out is left out, too.
        if path[:-1] in shown and not is_full[is_plain]:
            shown.add(path)
            if len(_written(node, shown)) > LENGTH:
                shown.discard(path)
                is_full[is_plain] = is_plain
    return shown


def _choices(node: _Node, path: Path = ()) -> Iterator[tuple[float, bool, Path]]:
    """Give the arguments that may be shown: how remote each is, and whether it is no class or function."""
    for place, one in enumerate(node.arguments):
        here = (*path, place)
        if not node.label:
            # The last word of generated names counts variants.
            yield float(0 < place < len(node.arguments) - 1), True, here
        elif not PLUMBING.match(one.label):
            is_plain = BUILT_IN.match(one.label) is not None
            yield len(here) + 1.5 * is_plain, is_plain, here
            yield from _choices(one, here)


def _written(node: _Node, shown: set[Path], path: Path = ()) -> str:
    """Write the parts that are to be shown; a mark stands for neighbours that are not."""
    written: list[str] = []
    for place, one in enumerate(node.arguments):
        if (*path, place) in shown:
            written.append(_written(one, shown, (*path, place)))
        elif written[-1:] != [ELLIPSIS]:
            written.append(ELLIPSIS)
    if not node.label:
        return "_".join(written)
    hidden = {part: text if (*path, part) in shown else "" for part, text in node.hidden.items()}
    inside = f"<{', '.join(written)}>" if written not in ([], [ELLIPSIS]) else ""
    scope, parameters, tail, around = (hidden.get(part, "") for part in (SCOPE, PARAMETERS, TAIL, AROUND))
    name = f"{scope}{node.label}{inside}{parameters}{tail}"
    return (around or "\0").replace("\0", name) + node.after
