"""The names of compiled programs, by which a profile says what was launched, and for which device."""

import re

from backends.devices import Device

__all__ = ["parse_program", "plain", "program_name"]

PROGRAM = re.compile(r"(?:jit_)?(.*)_on_([cg]pu)_(\d+)")


def plain(name: str) -> str:
    """Return a function's name in the characters that XLA keeps."""
    return re.sub(r"\W+", "_", name).strip("_")


def program_name(function: str, device: Device) -> str:
    """Name the program of a function on a device."""
    return f"{plain(function)}_on_{device.kind}_{device.index}"


def parse_program(name: str) -> tuple[str, str] | None:
    """Return the function and the device of a program, `relu` and `cpu:1`; None for other programs."""
    match = PROGRAM.fullmatch(name)
    return match and (match[1], f"{match[2]}:{match[3]}")
