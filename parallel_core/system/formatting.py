"""Formats of numbers, lists and byte sizes, for the terminal and the report; sizes are also read
here.
"""

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Literal

from backends.registry.loading import title

BINARY = {"GiB": 2**30, "MiB": 2**20, "KiB": 2**10}
DECIMAL = {"GB": 10**9, "MB": 10**6, "kB": 10**3}
UNITS = {**BINARY, **DECIMAL, "B": 1, "": 1}
BYTES_OF_UNIT = {unit.lower(): factor for unit, factor in UNITS.items()}
CONTROLS = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n"}
CONTROLS[0x7F] = 0x2421
CONTROLS.update(dict.fromkeys(range(0x80, 0xA0), 0xFFFD))
# What ends a line, and what turns the direction of a text, which then reads as another one.
CONTROLS.update(dict.fromkeys((0x61C, 0x200E, 0x200F, 0x2028, 0x2029), 0xFFFD))
CONTROLS.update(dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x206A)), 0xFFFD))
"""The symbols that show control characters."""
SIZE = re.compile(r"\s*([0-9]{1,18}(?:\.[0-9]{1,18})?)\s*([A-Za-z]*)\s*")
RANGE_FACTOR = 4
"""The factor from one size of a range to the next."""


def visible(text: str) -> str:
    """Return a text with symbols in place of control characters: `␛[2J`.

    A terminal would obey control characters, and a text may come from a foreign file, or from a
    framework's error. Tabs and ends of lines are kept.
    """
    return text.translate(CONTROLS)


def figure(value: float) -> str:
    """Write a number with three digits, and a large number in full; zero has no minus."""
    is_large = abs(value) >= 999.5
    written = f"{value:,.0f}" if is_large else f"{value + 0.0:.3g}"
    return written.replace("-", "−")


def percent(share: float, sign: Literal["", "+"] = "") -> str:
    """Write a share in percent, below 10 % with a decimal: `98 %`, `1.4 %`.

    With `+` a positive share has a sign too. A share that rounds to zero is `0 %`, without a minus.
    """
    value = 100 * share
    digits = 0 if abs(value) >= 9.95 else 1
    # Adding zero turns a negative zero, which rounding may give, into a plain one.
    rounded = round(value, digits) + 0.0
    return f"{rounded:{sign}.10g} %".replace("-", "−")


def seconds(value: float) -> str:
    """Write a time with three digits, in the largest unit below it: `20.0 ms`.

    A time of 0 is `0 ms`.
    """
    # This import is here because the other functions must work where only NumPy is installed.
    from humanize import metric

    if not value:
        return "0 ms"
    return metric(value, "s").replace("-", "−")


def listed(names: Sequence[str]) -> str:
    """Join names as a sentence does: `a, b and c`."""
    *others, last = names
    if not others:
        return last
    return ", ".join(others) + f" and {last}"


def with_queues(framework: str, backend: Mapping[str, Any]) -> str:
    """Return a framework's name with whose queues it uses: `PyTorch + our queues`.

    `backend` is the object `backend` of a result's JSON.
    """
    if backend["engine"] == "sync":
        return f"{framework} without queues"
    return f"{framework} + our queues" if "of parallel-core" in backend["scheduler"] else framework


def framework_in_words(backend: Mapping[str, Any]) -> str:
    """Write a framework's version, queues and chosen variants: `MXNet 1.9.1 with bulk-on`.

    `backend` is the object `backend` of a result's JSON.
    """
    words = with_queues(f"{title(backend['name'])} {backend['version']}", backend)
    variants = backend.get("variants", ())
    return f"{words} with {listed(variants)}" if variants else words


def kernels_in_words(backend: Mapping[str, Any]) -> str:
    """Write the library and kernels that multiply matrices, and their speed.

    For example `OpenBLAS 0.3.13, Haswell kernels: 62 GFLOP/s on one core`. `backend` is the object
    `backend` of a result's JSON; the text is empty for an old result, which does not have them.
    """
    if "product" not in backend or "kernels" not in backend:
        return ""
    library = "matrix multiplication"
    if backend["kernels"]:
        library = library_in_words(backend["kernels"][0])
    on_a_core = any(device.startswith("cpu") for device in backend["devices"])
    measured_on = "one core" if on_a_core else backend["devices"][0]
    speed = figure(backend["product"]["gflop_per_s"])
    return f"{library}: {speed} GFLOP/s on {measured_on}"


def library_in_words(kernels: Mapping[str, Any]) -> str:
    """Write one of a result's `kernels`: `oneDNN 2.4.4, AVX-512 kernels`.

    A version or an instruction set that is not known is left out.
    """
    library = " ".join(filter(None, (kernels["library"], kernels["version"])))
    instruction_set = kernels["instruction_set"]
    if not instruction_set:
        return library
    return f"{library}, {instruction_set} kernels"


def quantity(name: str, value: float) -> str:
    """Write a metric in the unit that its name implies."""
    is_time = name == "seconds" or name.endswith("_seconds") or name.startswith("seconds_")
    if is_time:
        return seconds(value)
    if "bytes" in name:
        from humanize import naturalsize

        return naturalsize(value)
    return figure(value)


def parse_size(text: str) -> int:
    """Read a size in bytes, with a unit or without.

    Raises ValueError if it is not a whole number ≥ 1.
    """
    match = SIZE.fullmatch(text)
    if match is None or match[2].lower() not in BYTES_OF_UNIT:
        raise ValueError(f"{text!r} is not a size in bytes (4096, 4KiB, 1.5MiB, 100MB, 1GiB)")
    number, unit = match[1], match[2].lower()
    size = Fraction(number) * BYTES_OF_UNIT[unit]
    if size.denominator != 1 or size < 1:
        raise ValueError(f"{text!r} is not a whole number of bytes, at least one")
    return int(size)


def parse_sizes(text: str) -> tuple[int, ...]:
    """Read sizes with commas between them, and ranges in factors of 4.

    `4KiB..64KiB` is 4, 16 and 64 KiB. A range ends at or below its second size. Raises ValueError.
    """
    sizes: list[int] = []
    for part in text.split(","):
        start, dots, stop = part.partition("..")
        size = parse_size(start)
        end = parse_size(stop) if dots else size
        if size > end:
            raise ValueError(f"the range {part.strip()!r} ends below its beginning")
        while size <= end:
            sizes.append(size)
            size *= RANGE_FACTOR
    return tuple(sizes)


def write_size(size: int) -> str:
    """Write a size in the largest unit of which it is a multiple, so that `parse_size` reads it.

    Binary units come first: 4194304 is `4 MiB`, 100000000 is `100 MB`, 1001 is `1001 B`.
    """
    for unit, factor in (*BINARY.items(), *DECIMAL.items()):
        if size % factor == 0:
            return f"{size // factor} {unit}"
    return f"{size} B"
