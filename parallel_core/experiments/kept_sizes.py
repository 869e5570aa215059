"""Sizes that a run chose for this machine, kept so that runs on other backends and engines do the same work.

They are in one file, under the machine's description: sizes of another machine are none here. $PARALLEL_CORE_SIZES
names another file; if it is empty, nothing is kept.
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

__all__ = ["KeptSizes", "keep_sizes", "kept_sizes", "place_of"]

VARIABLE = "PARALLEL_CORE_SIZES"
SAME_MACHINE = ("processor", "cores", "memory_bytes")
"""What of a machine's description decides whether it is the same one."""


@dataclass(frozen=True)
class KeptSizes:
    """The values of parameters that a run chose, the backend and engine it ran on, and the day."""

    values: Mapping[str, Any]
    chosen_on: str
    day: str


def place_of(backend: Backend) -> str:
    """Name the devices that sizes are chosen for, with their threads and workers; frameworks do not matter."""
    devices = ",".join(map(str, backend.devices))
    return f"{devices}; {backend.threads_per_device} threads, {backend.workers_per_device} workers"


def kept_sizes(experiment: str, place: str, names: Sequence[str]) -> KeptSizes | None:
    """Return the sizes of an experiment, if all the parameters that are named are kept for this machine."""
    with suppress(LookupError, TypeError, ValueError):
        kept = KeptSizes(**_read()[experiment][place])
        values = {name: _tuple_of(kept.values[name]) for name in names}
        return KeptSizes(values, kept.chosen_on, kept.day)
    return None


def keep_sizes(experiment: str, place: str, values: Mapping[str, Any], chosen_on: str) -> None:
    """Keep the sizes that a run chose, in the place of those before; a folder that cannot be written keeps none."""
    path = _path()
    if path is None:
        return
    kept = KeptSizes(dict(values), chosen_on, datetime.datetime.now(datetime.UTC).date().isoformat())
    sizes = _read()
    sizes[experiment] = {**sizes.get(experiment, {}), place: asdict(kept)}
    text = json.dumps({"machine": _machine(), "sizes": sizes}, indent=1, ensure_ascii=False) + "\n"
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, lambda stream: stream.write(text.encode()))


def _read() -> dict[str, dict[str, Any]]:
    path = _path()
    try:
        document = json.loads(path.read_text(encoding="utf-8")) if path is not None else {}
        sizes: dict[str, dict[str, Any]] = document["sizes"] if document["machine"] == _machine() else {}
    except (OSError, ValueError, LookupError, TypeError):
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


def _tuple_of(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
