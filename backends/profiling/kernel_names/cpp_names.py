"""Names of C++ functions and types, as demanglers write them, as trees.

A parser rather than a search for `::`, for that also stands in template arguments, in lambdas' scopes and in quoted
anonymous namespaces. What it does not understand it refuses, so that no part of a name passes for the whole.
"""

import re
from typing import NamedTuple, TypeAlias

__all__ = ["Brackets", "Component", "Name", "Text", "parse_text"]


class Component(NamedTuple):
    """A part of a qualified name between two `::`: an identifier, its template arguments, its parameters."""

    identifier: str
    written: str
    """The identifier with its template arguments, as it stands."""
    arguments: "tuple[Text, ...] | None" = None
    parameters: "tuple[Text, ...] | None" = None
    """Of a function in whose scope the rest of the name stands; None if it is no such function."""


class Name(NamedTuple):
    """A qualified name."""

    components: tuple[Component, ...]
    written: str


class Brackets(NamedTuple):
    """Texts between commas, in parentheses, braces, square brackets or, for unnamed things, angle ones."""

    opening: str
    texts: "tuple[Text, ...]"
    written: str
    """All of it, with the brackets."""


Text: TypeAlias = tuple[str | Name | Brackets, ...]
"""A type, an expression, or a function with its return type and parameters; strings are what stands between names."""

CLOSING = {"(": ")", "<": ">", "{": "}", "[": "]"}
SYMBOLS = r"\(\)|\[\]|<=>|<<=|>>=|->\*|->|<<|>>|<=|>=|==|!=|&&|\|\||\+\+|--|[-+*/%^&|]=|[-+*/%^&|~!=<>,]"
TOKEN = re.compile(
    rf"""
    (?P<name> operator(?:{SYMBOLS}|\ (?:new|delete)(?:\[\])?|""[ ]?\w+|(?=\ ?\w)[ ][\w:]+[*&]*)
            | \(anonymous[ ][a-z]+\) | <(?:unnamed|lambda)[^<>]*> | `[^`']*' | '[a-z]+\d*'
            | [~]?[A-Za-z_$@][\w$@.]*(?:\[abi:\w+\])* )
    | (?P<space> \ + )
    | (?P<number> \d[\w.]* | '(?:\\.|[^'\\])' | "(?:\\.|[^"\\])*" )
    | (?P<symbol> ::|->|&&|\|\||<=|>=|==|!=|<< | . )
    """,
    re.VERBOSE | re.DOTALL,
)
SCOPE_QUALIFIERS = re.compile(r"(?: (?:const|volatile|noexcept)| ?&&?)*::")
"""What may stand between a function's parameters and what is in its scope."""


def parse_text(written: str) -> Text | None:
    """Return what a name says, or None if its brackets do not match, or if they cannot be told from `less than`."""
    parser = _Parser(written)
    try:
        text = parser.text("")
    except (_MismatchError, RecursionError):
        return None
    return text if parser.place == len(written) else None


class _MismatchError(ValueError):
    """A bracket without its counterpart."""


class _Parser:
    """A place in a name; each method reads one thing and moves behind it."""

    def __init__(self, written: str) -> None:
        self.written = written
        self.place = 0

    def text(self, closing: str) -> Text:
        """Read up to a comma or to `closing`, which it leaves; without `closing`, to the end."""
        pieces: list[str | Name | Brackets] = []
        while match := TOKEN.match(self.written, self.place):
            token = match[0]
            if token == closing or (token == "," and closing):
                break
            # `>` alone may be `greater than`; the others always close something.
            if token in (")", "}", "]"):
                raise _MismatchError
            if match["name"] or token in ("{", "::"):
                pieces += self.name()
            elif token in ("(", "["):
                pieces.append(self.brackets(token))
            else:
                self.place = match.end()
                pieces.append(token)
        return tuple(pieces)

    def brackets(self, opening: str) -> Brackets:
        """Read what stands in brackets, which begin here."""
        begin, closing = self.place, CLOSING[opening]
        self.place += 1
        texts = [self.text(closing)]
        while self.written.startswith(",", self.place):
            self.place += 1
            self.skip_spaces()
            texts.append(self.text(closing))
        if not self.written.startswith(closing, self.place):
            raise _MismatchError
        self.place += 1
        inside = () if texts == [()] else tuple(map(_stripped, texts))
        return Brackets(opening, inside, self.written[begin : self.place])

    def name(self) -> "tuple[Name] | tuple[Name, Brackets]":
        """Read a qualified name with all that is in the scope of its functions, and its own parameters."""
        if self.written.startswith("::", self.place):
            self.place += 2
        components = []
        begin = self.place
        while True:
            here = self.place
            identifier, arguments, brackets = self.identifier(), self.arguments(), None
            end = self.place
            if self.written.startswith("(", self.place):
                brackets = self.brackets("(")
            scope = SCOPE_QUALIFIERS.match(self.written, self.place)
            if scope is None:
                components.append(Component(identifier, self.written[here:end], arguments))
                name = Name(tuple(components), self.written[begin:end])
                return (name,) if brackets is None else (name, brackets)
            self.place = scope.end()
            components.append(Component(identifier, self.written[here:end], arguments, brackets and brackets.texts))

    def identifier(self) -> str:
        """Read an identifier; a lambda in braces is one, too."""
        match = TOKEN.match(self.written, self.place)
        if match and match["name"]:
            self.place = match.end()
            return match[0]
        if match and match[0] == "{":
            begin = self.place
            self.brackets("{")
            return self.written[begin : self.place]
        raise _MismatchError

    def arguments(self) -> "tuple[Text, ...] | None":
        """Read template arguments, if there are any."""
        # Demanglers set a space between `operator<` and its arguments.
        if self.written.startswith(" <", self.place) and self.written.startswith("<", self.place - 1):
            self.place += 1
        return self.brackets("<").texts if self.written.startswith("<", self.place) else None

    def skip_spaces(self) -> None:
        """Move behind spaces."""
        while self.written.startswith(" ", self.place):
            self.place += 1


def _stripped(text: Text) -> Text:
    pieces = list(text)
    while pieces and isinstance(pieces[-1], str) and not pieces[-1].strip():
        pieces.pop()
    return tuple(pieces)
