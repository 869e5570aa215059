"""Try each backend's engines in processes of their own, one after the other, and never longer than a deadline."""

import asyncio
import importlib.util
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import distributions

import msgspec

import backends
from backends.installation.gpus import Failure
from backends.installation.known_failures import explain, explain_environment
from backends.installation.probe import DEFAULT_ENGINE, Probe
from parallel_core.system.subprocesses import Outcome, supervise

__all__ = ["Attempt", "try_all", "try_backend"]

ENGINES = {"mxnet": ("async", "sync"), "torch": ("async", "sync"), "numpy": ("sync",)}
DISTRIBUTIONS = {"mxnet": r"mxnet(-(cu|mkl|native)\w*)?", "torch": "torch", "numpy": "numpy"}
"""The names of the distributions that may hold a framework."""


@dataclass(frozen=True)
class Attempt:
    """What became of a backend. `distributions` are those its framework may come from, `probes` one for each engine.

    Without probes its framework is not installed.
    """

    name: str
    distributions: tuple[tuple[str, str], ...]
    probes: tuple[Probe, ...]

    @property
    def usable(self) -> tuple[Probe, ...]:
        """The engines that work."""
        return tuple(probe for probe in self.probes if probe.failure is None)


def try_all(deadline: float) -> Iterator[Attempt]:
    """Try every registered backend; no process may take longer than `deadline` seconds."""
    for name in backends.names():
        yield try_backend(name, deadline)


def try_backend(name: str, deadline: float) -> Attempt:
    """Try one backend; where the import did not end, or failed, it would do so with its other engines too."""
    if name in DISTRIBUTIONS and importlib.util.find_spec(name) is None:
        return Attempt(name, (), ())
    probes: list[Probe] = []
    for engine in ENGINES.get(name, (DEFAULT_ENGINE,)):
        # -P: the current folder may hold another checkout than the one that is installed.
        command = [sys.executable, "-P", "-m", "backends.installation.probe", name, engine]
        outcome = asyncio.run(supervise(command, deadline, set()))
        probes.append(_answer(name, engine, outcome, deadline))
        if outcome.timed_out or not probes[-1].imported:
            break
    return Attempt(name, _distributions(name), tuple(probes))


def _answer(name: str, engine: str, outcome: Outcome, deadline: float) -> Probe:
    lines: Sequence[str] = outcome.output.splitlines()
    if lines and outcome.status == 0:
        try:
            return msgspec.json.decode(lines[-1], type=Probe)
        except msgspec.DecodeError:
            pass
    known = explain(name, outcome.errors)
    if known is None:
        known = next(iter(explain_environment(name, os.environ)), None)
    reason = outcome.reason(deadline)
    if outcome.timed_out or outcome.status < 0:
        reason = f"the process that loaded it {reason}"
    return Probe(name, engine, failure=Failure(known.cause if known else reason, known))


def _distributions(name: str) -> tuple[tuple[str, str], ...]:
    pattern = DISTRIBUTIONS.get(name)
    if pattern is None:
        return ()
    found = {(str(one.name).lower().replace("_", "-"), one.version) for one in distributions()}
    return tuple(sorted(one for one in found if re.fullmatch(pattern, one[0])))
