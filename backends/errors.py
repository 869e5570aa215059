"""Errors of two kinds: the request was wrong, or the computation was."""

from collections.abc import Iterable
from difflib import get_close_matches


class BackendError(Exception):
    """The request cannot be met: unknown or missing framework, impossible devices, settings that
    came too late.
    """


class ComputationError(BackendError):
    """A launched computation failed.

    The backend refuses further work, since later results would be garbage.
    """


def message_of(error: BaseException) -> str:
    """Return an exception's message, or say which error its `__str__` raises.

    The failure itself must not be lost by such an error. Characters that a terminal would obey, or
    that turn the direction of a text, are written as escapes.
    """
    try:
        message = str(error)
    except BaseException as unreadable:
        return f"no message, for its __str__ raised {type(unreadable).__name__}"
    return "".join(map(_printable, message))


def _printable(character: str) -> str:
    """Return a character, or its escape if it is neither printable nor a tab or a new line."""
    if character.isprintable() or character in "\t\r\n":
        return character
    return ascii(character)[1:-1]


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """Say that no `what` has this name, and which one may be meant.

    If none is like it, name them all.
    """
    known_names = list(known)
    similar_names = get_close_matches(name, known_names, 1, 0.7)
    if similar_names:
        return f"unknown {what} {name!r}: did you mean {similar_names[0]}?"
    return f"unknown {what} {name!r} (known: {', '.join(known_names)})"
