"""Sizes that a run chose for this machine, kept so that runs on other backends and engines do the same work.

They are in one file, under the machine's description: sizes of another machine are none here. $PARALLEL_CORE_SIZES
names another file; if it is empty, nothing is kept. A file that was spoilt is as good as none.
"""

import datetime
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import msgspec

from backends import Backend
from parallel_core.system.files import write_whole
from parallel_core.system.machine import describe_machine

VARIABLE = "PARALLEL_CORE_SIZES"
RULE = 2
"""The number of the rule that sizes are chosen by: sizes of another one are none here."""
SAME_MACHINE = ("processor", "cores", "memory_bytes")
"""What of a machine's description decides whether it is the same one."""

Size = Annotated[int, msgspec.Meta(gt=0)]


@dataclass(frozen=True)
class KeptSizes:
    """The values of parameters that a run chose, the backend and engine it ran on, and the day."""

    values: Mapping[str, Size | Annotated[tuple[Size, ...], msgspec.Meta(min_length=1)]]
    chosen_on: str
    day: str

    def __str__(self) -> str:
        return f"kept for this machine, as chosen on {self.chosen_on}, {self.day}; --work new chooses others"


@dataclass(frozen=True)
class _File:
    rule: int
    machine: Mapping[str, Any]
    sizes: dict[str, dict[str, Any]]
    """By experiment and place."""


def place_of(backend: Backend, budget: float | None) -> str:
    """Name the devices that sizes are chosen for, with threads, workers and seconds; frameworks do not matter."""
    devices, seconds = ",".join(map(str, backend.devices)), "" if budget is None else f", {budget:g} s"
    return f"{devices}; {backend.threads_per_device} threads, {backend.workers_per_device} workers{seconds}"


def kept_sizes(experiment: str, place: str, names: Sequence[str]) -> KeptSizes | None:
    """Return the sizes of an experiment, if all the parameters that are named are kept for this machine."""
    with suppress(msgspec.ValidationError, KeyError):
        kept = msgspec.convert(_read()[experiment][place], KeptSizes)
        return replace(kept, values={name: kept.values[name] for name in names})
    return None


def keep_sizes(experiment: str, place: str, values: Mapping[str, int | str], chosen_on: str) -> None:
    """Keep the sizes that a run chose, in the place of those before; a folder that cannot be written keeps none.

    Several are written with commas, as in a result.
    """
    if (path := _path()) is None:
        return
    read = {name: one if isinstance(one, int) else tuple(map(int, one.split(","))) for name, one in values.items()}
    sizes, today = _read(), datetime.datetime.now(datetime.UTC).date()
    sizes.setdefault(experiment, {})[place] = KeptSizes(read, chosen_on, today.isoformat())
    text = msgspec.json.format(msgspec.json.encode(_File(RULE, _machine(), sizes)), indent=1)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, lambda stream: stream.write(text))


def _read() -> dict[str, dict[str, Any]]:
    if (path := _path()) is not None:
        with suppress(OSError, msgspec.MsgspecError, ValueError, RecursionError):
            file = msgspec.json.decode(path.read_bytes(), type=_File)
            if (file.rule, file.machine) == (RULE, _machine()):
                return file.sizes
    return {}


def _path() -> Path | None:
    import platformdirs

    named = os.environ.get(VARIABLE)
    if named is None:
        return platformdirs.user_cache_path("parallel-core") / "sizes.json"
    return Path(named) if named else None


def _machine() -> dict[str, Any]:
    described = describe_machine()
    return {name: described[name] for name in SAME_MACHINE}
