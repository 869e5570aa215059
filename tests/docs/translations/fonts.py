"""Which characters the fonts of a page have, on this machine: style sheets name families, fontconfig knows fonts."""

import re
import subprocess
from functools import cache

GENERIC = ("sans-serif", "monospace")


def declared(styles: str, language: str, variable: str) -> list[str]:
    """Return the families that a variable of a page's style names for a language, as its own rule or else for all."""
    own = re.findall(rf"html:lang\({language}\)[^{{]*\{{[^}}]*?{variable}:([^;]*);", styles)
    stacks = own or re.findall(rf"{variable}:([^;]*);", styles)
    if not stacks:
        raise ValueError(f"no style sheet declares {variable}")
    return [family.strip().strip("\"'") for family in stacks[0].split(",")]


@cache
def characters(family: str, language: str) -> frozenset[int]:
    """Return the characters of an installed family; a generic one is what fontconfig takes for it in a language."""
    if family in GENERIC:
        family = ask("fc-match", "--format=%{family[0]}", f"{family}:lang={language}")
    return frozenset(
        code for line in ask("fc-list", "--format=%{charset}\n", f":family={family}").split() for code in codes(line)
    )


def codes(part: str) -> range:
    """Read one range of a character set as fontconfig prints it: a hexadecimal number, or two with a hyphen."""
    first, _, last = part.partition("-")
    return range(int(first, 16), int(last or first, 16) + 1)


def ask(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def installed(family: str) -> bool:
    return bool(ask("fc-list", f":family={family}"))
