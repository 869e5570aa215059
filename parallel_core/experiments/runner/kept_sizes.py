"""Sizes that a run chose for this machine, kept so that runs on other backends and engines do the same work.

They are in one file, under the machine's description: sizes of another machine are none here. $PARALLEL_CORE_SIZES
names another file; if it is empty, nothing is kept. What was spoilt in the file is as good as not kept.
"""

import datetime
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from backends import Backend
from parallel_core.system.files import write_whole
from parallel_core.system.machine import describe_machine

VARIABLE = "PARALLEL_CORE_SIZES"
RULE = 2
"""The number of the rule that sizes are chosen by: sizes of another one are none here."""
SAME_MACHINE = ("processor", "cores", "memory_bytes")
"""What of a machine's description decides whether it is the same one."""


@dataclass(frozen=True)
class KeptSizes:
    """The values of parameters that a run chose, the backend and engine it ran on, and the day."""

    values: Mapping[str, Any]
    chosen_on: str
    day: str

    def __str__(self) -> str:
        return f"kept for this machine, as chosen on {self.chosen_on}, {self.day}; --work new chooses others"


def place_of(backend: Backend, budget: float | None) -> str:
    """Name the devices that sizes are chosen for, with threads, workers and seconds; frameworks do not matter."""
    devices, seconds = ",".join(map(str, backend.devices)), "" if budget is None else f", {budget:g} s"
    return f"{devices}; {backend.threads_per_device} threads, {backend.workers_per_device} workers{seconds}"


def kept_sizes(experiment: str, place: str, names: Sequence[str]) -> KeptSizes | None:
    """Return the sizes of an experiment, if all the parameters that are named are kept for this machine."""
    places = _read().get(experiment)
    match places.get(place) if isinstance(places, dict) else None:
        case {"values": dict(kept), "chosen_on": str(chosen_on), "day": str(day)}:
            values = {name: _size_of(kept.get(name)) for name in names}
            return None if None in values.values() else KeptSizes(values, chosen_on, day)
    return None


def keep_sizes(experiment: str, place: str, values: Mapping[str, Any], chosen_on: str) -> None:
    """Keep the sizes that a run chose, in the place of those before; a folder that cannot be written keeps none."""
    path = _path()
    if path is None:
        return
    kept = KeptSizes(dict(values), chosen_on, datetime.datetime.now(datetime.UTC).date().isoformat())
    sizes = _read()
    before = sizes.get(experiment)
    sizes[experiment] = {**(before if isinstance(before, dict) else {}), place: asdict(kept)}
    text = json.dumps({"rule": RULE, "machine": _machine(), "sizes": sizes}, indent=1, ensure_ascii=False) + "\n"
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        # JSON may hold half of a character, which UTF-8 does not.
        write_whole(path, lambda stream: stream.write(text.encode(errors="replace")))


def _read() -> dict[str, Any]:
    path = _path()
    try:
        document = json.loads(path.read_text(encoding="utf-8")) if path is not None else {}
        is_ours = document["rule"] == RULE and document["machine"] == _machine()
        sizes: Any = document["sizes"] if is_ours else {}
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return {}
    return sizes if isinstance(sizes, dict) else {}


def _path() -> Path | None:
    import platformdirs

    named = os.environ.get(VARIABLE)
    if named is None:
        return platformdirs.user_cache_path("parallel-core") / "sizes.json"
    return Path(named) if named else None


def _machine() -> dict[str, Any]:
    described = describe_machine()
    return {name: described[name] for name in SAME_MACHINE}


def _size_of(value: Any) -> int | tuple[int, ...] | None:
    """Return a size, or several, which a result writes with commas; None for what is none."""
    if isinstance(value, str) and all(map(str.isdecimal, value.split(","))):
        value = [int(one) for one in value.split(",")]
    if isinstance(value, list):
        return tuple(value) if value and all(_size_of(one) == one for one in value) else None
    return value if type(value) is int and value > 0 else None
