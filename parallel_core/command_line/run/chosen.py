"""`run EXPERIMENT --explain`: for which backends and kinds of devices it is explained."""

from collections.abc import Mapping
from typing import Any, get_args

import backends
from backends import Engine
from backends.devices import DeviceKind
from backends.errors import unknown
from backends.installation.frameworks import is_installed
from backends.registry.variants import frameworks
from parallel_core.doctor.gpus import ask_driver
from parallel_core.experiments import Experiment
from parallel_core.system.errors import RequestError
from parallel_core.terminal.explanation import Chosen


def chosen_for(experiment: Experiment, given: Mapping[str, Any]) -> Chosen:
    """Return what an experiment is explained for: what is given, or what is installed and there.

    `given` are options as they are written. Raises RequestError for a backend, a kind of devices or an engine that is
    not known.
    """
    named = tuple(name.strip() for name in given.get("backend", "").split(",") if name.strip())
    kind, engine = given.get("device_kind", "auto"), given.get("engine")
    known = (
        *(("backend", name, backends.names()) for name in named),
        ("device kind", kind, ("auto", *get_args(DeviceKind))),
        ("engine", engine, (None, *get_args(Engine))),
    )
    for what, value, values in known:
        if value not in values:
            raise RequestError(unknown(what, value, filter(None, values)))
    kinds = _kinds_there() if kind == "auto" else (kind,)
    return Chosen(experiment.settings, named or tuple(filter(is_installed, frameworks())), kinds, engine)


def _kinds_there() -> tuple[DeviceKind, ...]:
    cards = ask_driver()
    return ("cpu", "gpu") if isinstance(cards, tuple) and cards else ("cpu",)
