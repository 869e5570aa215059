"""Short names for kernels: a function's last name, and a word of its arguments if names coincide.

A kernel's full name has up to 10,000 characters. The short one leaves out the return type,
namespaces, template arguments and parameters. Kernels of a trace that would share a name get the
word that tells them apart best, such as the functor that PyTorch applies, and numbers if they still
share it.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

import pycxxfilt

LENGTH = 40
"""A longer name has an ellipsis in its middle: kernels' names differ at their ends."""
GENERIC = {"CppNode", "Kernel", "Kernel2", "device_kernel", "kernel"}
"""What says nothing without a word of its arguments, as CUTLASS's kernels."""
SUFFIX = re.compile(r"(?: \[clone \S+\]|\.kd)$")
"""What compilers add to the name of a kernel's variant."""
UNNAMED = re.compile(
    r"\(anonymous namespace\)::|`anonymous namespace'::|<unnamed>::"  # namespaces
    r"|'lambda\d*'|\$_\d+"  # lambdas
)
OPERATORS = re.compile(r"->|(?<=\d\))[<>](?=\(\d)")
"""Operators that look like brackets: of a pointer, and between numbers, as in `(8)>(0)`."""
BRACKETS = re.compile(r"<[^<>(){}]*>|\([^<>(){}]*\)|\{[^<>(){}]*\}")
"""Brackets that hold no others."""
ANY_BRACKET = re.compile(r"[<>(){}]")
IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
NOT_A_NAME = {"const", "operator"}
"""What may stand after a function's name."""
ENDS = (")", ">", "}", " const")
"""How the full names of C++ functions and classes end."""
WORD = re.compile(r"\b[A-Za-z_]\w*\b(?!::)")
"""A word of a function's arguments that is no namespace."""


def short_names(full_names: Iterable[str]) -> dict[str, str]:
    """Return a short name for each distinct full name, no two the same.

    Mangled names are demangled. A name that is no C++ function's is only shortened in its middle.
    """
    text_of = {full_name: _text(full_name) for full_name in sorted(set(full_names))}
    names_of_function = defaultdict[str, list[str]](list)
    for full_name, text in text_of.items():
        names_of_function[_function(text)].append(full_name)
    short_name_of: dict[str, str] = {}
    for function, names in names_of_function.items():
        is_telling = len(names) == 1 and function not in GENERIC
        if is_telling:
            short_name_of[names[0]] = shortened(function)
            continue
        # Several kernels would have this name, so each gets a word of its arguments.
        words = _telling_words(function, [text_of[name] for name in names])
        for name, word in zip(names, words, strict=True):
            short_name_of[name] = shortened(f"{function}<{word}>" if word else function)
    return _numbered(short_name_of)


def _text(full_name: str) -> str:
    """Return a full name demangled, and without what stands for something that has no name."""
    text = SUFFIX.sub("", full_name)
    if text.startswith("_Z"):
        with suppress(ValueError):
            text = pycxxfilt.itanium_demangle(text) or text
    return UNNAMED.sub("", text)


def _function(text: str) -> str:
    """Return a C++ function's last name, `f` of `void a::b::f<int>(float)`.

    It is all of the text if that is no function, or is not understood.
    """
    if not text.endswith(ENDS):
        return text
    plain = OPERATORS.sub("", text)
    # The innermost brackets are removed until there are none.
    removed = 1
    while removed > 0:
        plain, removed = BRACKETS.subn("", plain)
    # Parameters follow a name without a space, unlike what is in brackets in `Memset (Device)`.
    if plain.endswith(" ") or ANY_BRACKET.search(plain):
        return text
    names = [name for name in IDENTIFIER.findall(plain) if name not in NOT_A_NAME]
    return names[-1] if names else text


def _telling_words(function: str, texts: Sequence[str]) -> list[str]:
    """Return a word of each text's template arguments: the first of those that fewest texts hold.

    It is "" if there are no template arguments.
    """
    words_of_texts = []
    text_counts: Counter[str] = Counter()
    for text in texts:
        _, _, arguments = text.partition(f"{function}<")
        words = WORD.findall(arguments)
        words_of_texts.append(words)
        text_counts.update(set(words))
    return [min(words, key=text_counts.__getitem__, default="") for words in words_of_texts]


def shortened(name: str, length: int = LENGTH) -> str:
    """Put an ellipsis into the middle of a name that is too long: kernels' and threads' names
    differ at their ends.
    """
    if len(name) <= length:
        return name
    kept = length - 1
    kept_at_end = kept - kept // 2
    beginning, end = name[: kept // 2], name[len(name) - kept_at_end :]
    return f"{beginning}…{end}"


def _numbered(names: Mapping[str, str]) -> dict[str, str]:
    """Return the short names by full name; of equal ones the second ends in ` #2`."""
    counts: Counter[str] = Counter()
    numbered = {}
    for full_name, name in names.items():
        counts[name] += 1
        number = counts[name]
        numbered[full_name] = name if number == 1 else f"{name} #{number}"
    return numbered
