"""The times of events as whole nanoseconds, from the digits in the file: a float would round them before we do.

Microseconds since 1970 have 16 digits before the point, and with nanoseconds 19: more than a float holds. So many
numbers are read at once as integers, their points taken out; if one has another form, one by one, as decimals.
"""

from collections.abc import Sequence
from decimal import Context, Decimal, localcontext
from typing import NamedTuple, TypeAlias

import msgspec
import numpy as np

MAX_NANOSECONDS = 2**62
"""146 years: a time further from zero is impossible, and differences of possible ones fit in 64 bits."""
MAX_MICROSECONDS = Decimal(MAX_NANOSECONDS) / 1000
MAX_DIGITS = 19
COMMA, POINT, NINE = b",.9"
PLAIN = b"0123456789.,"
POWERS = 10 ** np.arange(4, dtype=np.int64)
EXACT = Context(prec=50)

Number: TypeAlias = int | Decimal | None
"""Microseconds as they stand in the file."""

NUMBER: "msgspec.json.Decoder[Number]" = msgspec.json.Decoder(int | Decimal | None)


class Times(NamedTuple):
    """Times in nanoseconds, rounded to the nearest."""

    nanoseconds: np.ndarray
    is_possible: np.ndarray
    is_whole: np.ndarray
    """Whether nothing was rounded."""


def times_of(values: Sequence[msgspec.Raw]) -> Times:
    """Return the times that JSON values in microseconds stand for; what is no number is impossible."""
    return _many(values) or _one_by_one(values)


def ends_of(begins: Times, begin_values: Sequence[msgspec.Raw], duration_values: Sequence[msgspec.Raw]) -> Times:
    """Return when events end that begin at some times and last so long; each end is rounded once."""
    durations = times_of(duration_values)
    ends = begins.nanoseconds + durations.nanoseconds
    possible = begins.is_possible & durations.is_possible
    whole = begins.is_whole & durations.is_whole
    for place in np.flatnonzero(possible & ~whole).tolist():
        begin, duration = _number(begin_values[place]), _number(duration_values[place])
        assert begin is not None
        assert duration is not None
        with localcontext(EXACT):
            ends[place] = round((begin + duration) * 1000)
    # A sum beyond 64 bits begins again from below.
    possible &= (ends >= begins.nanoseconds) & (ends < MAX_NANOSECONDS)
    return Times(ends, possible, whole)


def _many(values: Sequence[msgspec.Raw]) -> Times | None:
    """Read numbers without sign and exponent at once; None if other numbers are among them."""
    text = b",".join(values)
    if text.translate(None, PLAIN) or not text:
        return None
    characters = np.frombuffer(text, np.uint8)
    ends = np.append(np.flatnonzero(characters == COMMA), len(text))
    begins = np.concatenate(([0], ends[:-1] + 1))
    points = np.flatnonzero(characters == POINT)
    with_point = np.searchsorted(ends, points)
    decimals = np.zeros(len(ends), np.int64)
    decimals[with_point] = ends[with_point] - points - 1
    digits = ends - begins
    if len(ends) != len(values) or not digits.all():
        return None
    digits[with_point] -= 1
    digits += 3 - decimals
    if np.any((decimals > 3) | (digits > MAX_DIGITS) | ((digits == MAX_DIGITS) & (characters[begins] >= NINE))):
        return None
    numbers = np.fromstring(text.replace(b".", b""), np.int64, sep=",")
    nanoseconds = numbers * POWERS[3 - decimals]
    return Times(nanoseconds, np.abs(nanoseconds) < MAX_NANOSECONDS, np.ones(len(values), bool))


def _one_by_one(values: Sequence[msgspec.Raw]) -> Times:
    nanoseconds = np.zeros(len(values), np.int64)
    possible, whole = np.zeros(len(values), bool), np.zeros(len(values), bool)
    with localcontext(EXACT):
        for place, value in enumerate(values):
            number = _number(value)
            if number is None or not -MAX_MICROSECONDS < number < MAX_MICROSECONDS:
                continue
            nanoseconds[place] = rounded = round(number * 1000)
            possible[place], whole[place] = True, rounded == number * 1000
    return Times(nanoseconds, possible, whole)


def _number(value: msgspec.Raw) -> Number:
    try:
        number = NUMBER.decode(value)
    except (msgspec.MsgspecError, ValueError):
        return None
    return number if isinstance(number, int) or (number is not None and number.is_finite()) else None
