"""The names of compiled programs, by which a profile says what was launched, and for which device."""

import re
from collections.abc import Iterable

from backends.devices import Device

__all__ = ["functions_of", "parse_program", "plain", "program_name", "step_name"]

THEN = "_then_"
LONGEST = 120
"""Characters of a step's functions: JAX keeps what is compiled in files of the program's name."""
PROGRAM = re.compile(r"(?:jit_)?(.*)_on_([cg]pu)_(\d+)")


def plain(name: str) -> str:
    """Return a function's name in the characters that XLA keeps."""
    return re.sub(r"\W+", "_", name).strip("_")


def program_name(function: str, device: Device) -> str:
    """Name the program of a function on a device."""
    return f"{plain(function)}_on_{device.kind}_{device.index}"


def step_name(functions: Iterable[str], device: Device) -> str:
    """Name the program of several functions, whose names are plain; of many, the first ones."""
    first, *others = functions
    for number, function in enumerate(others):
        if len(first) + len(function) > LONGEST:
            return program_name(f"{first}_and_{len(others) - number}_more", device)
        first = f"{first}{THEN}{function}"
    return program_name(first, device)


def functions_of(name: str) -> list[str]:
    """Return the functions of a program that `parse_program` gave the name of, in the order of their launches."""
    return name.split(THEN)


def parse_program(name: str) -> tuple[str, str] | None:
    """Return the function and the device of a program, `relu` and `cpu:1`; None for other programs."""
    match = PROGRAM.fullmatch(name)
    return match and (match[1], f"{match[2]}:{match[3]}")
