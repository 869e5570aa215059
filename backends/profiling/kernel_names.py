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
from itertools import chain

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
    texts = {full: _text(full) for full in sorted(set(full_names))}
    groups = defaultdict[str, list[str]](list)
    for full, text in texts.items():
        groups[_function(text)].append(full)
    names: dict[str, str] = {}
    for function, group in groups.items():
        if len(group) == 1 and function not in GENERIC:
            names[group[0]] = function
        else:
            words = _telling_words(function, [texts[full] for full in group])
            for full, word in zip(group, words, strict=True):
                names[full] = f"{function}<{word}>" if word else function
    return _numbered({full: _shortened(name) for full, name in names.items()})


def _text(full: str) -> str:
    """Return a full name demangled, and without what stands for something that has no name."""
    text = SUFFIX.sub("", full)
    if text.startswith("_Z"):
        with suppress(ValueError):
            text = pycxxfilt.itanium_demangle(text) or text
    return UNNAMED.sub("", text)


def _function(text: str) -> str:
    """Return a C++ function's last name; all of the text if it is none or is not understood."""
    if not text.endswith(ENDS):
        return text
    plain = OPERATORS.sub("", text)
    removed = 1
    while removed:
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
    words = [WORD.findall(text.partition(f"{function}<")[2]) for text in texts]
    frequencies = Counter(chain.from_iterable(map(set, words)))
    return [min(of_text, key=frequencies.__getitem__, default="") for of_text in words]


def _shortened(name: str) -> str:
    """Return a name with an ellipsis in its middle if it is too long."""
    if len(name) <= LENGTH:
        return name
    half = LENGTH // 2
    return f"{name[: half - 1]}…{name[-half:]}"


def _numbered(names: Mapping[str, str]) -> dict[str, str]:
    """Return the names by full name; of those that are the same, the second ends in ` #2`."""
    counts: Counter[str] = Counter()
    numbered = {}
    for full, name in names.items():
        counts[name] += 1
        numbered[full] = name if counts[name] == 1 else f"{name} #{counts[name]}"
    return numbered
