"""Which versions work together: in each environment the backends' tests, random programs on every
engine, and three experiments on every framework.

    python -m benchmarks environments                       # those that make made
    python -m benchmarks environments /opt/new/bin/python
"""

import asyncio
import json
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import click

from benchmarks.harness.measurement import Measurement, Method, Report, Request
from parallel_core.system.errors import DISTURBED
from parallel_core.system.machine import ROOT
from parallel_core.system.subprocesses import Outcome, supervise

MADE_BY_MAKE = (".venv", ".venv-jax", ".venv-mxnet")
EXPERIMENTS = ("async", "parallel", "overlap")
VERSIONS = """
import json, platform
from importlib.metadata import version
from importlib.util import find_spec
found = [name for name in ("jax", "mxnet", "torch", "numpy") if find_spec(name)]
print(json.dumps({"python": platform.python_version(), **{name: version(name) for name in found}}))
"""
# The suite ends a test that hangs after 10 minutes: this is for what hangs outside of a test.
DEADLINE = 3600


def measure(request: Request, pythons: Sequence[str]) -> Iterator[Report]:
    """Try the environments of these Pythons; what is known of other versions stays."""
    tried = list(request.stored.get("environments", ()))
    made = [ROOT / folder / "bin" for folder in MADE_BY_MAKE]
    with_tests = [folder / "python" for folder in made if (folder / "pytest").exists()]
    for python in pythons or with_tests:
        environment = environment_of(Path(python), request.quick)
        click.echo(json.dumps(environment, indent=1))
        versions = environment["versions"]
        tried = [other for other in tried if other["versions"] != versions] + [environment]
        yield Report(data={"environments": tried})


def environment_of(python: Path, quick: bool) -> dict[str, Any]:
    """Return what came of an environment, as JSON."""
    versions: dict[str, str] = json.loads(_run(python, "-c", VERSIONS).output)
    frameworks = [name for name in versions if name not in ("python", "numpy")]
    environment: dict[str, Any] = {
        "versions": versions,
        "utc": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    if quick:
        return environment
    experiments = {}
    for framework, name in product(frameworks, EXPERIMENTS):
        experiments[f"{name} on {framework}"] = experiment(python, name, framework)
    return {
        **environment,
        "tests": tests(python, frameworks),
        "conformance": conformance(python),
        "experiments": experiments,
    }


def tests(python: Path, frameworks: Sequence[str]) -> dict[str, Any]:
    """Return how many of the backends' tests passed, failed and were skipped, and the names of
    those that failed.
    """
    options = ("-p", "no:xdist", "-q", "-rfE", "-m", "not long", "--require", ",".join(frameworks))
    ended = _run(python, "-m", "pytest", *options, "tests/backends")
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    *_, summary = ("", *ended.output.splitlines())
    counted = re.findall(r"(\d+) (passed|failed|skipped|error)", summary)
    for number, what in counted:
        counts["failed" if what == "error" else what] += int(number)
    failures = re.findall(r"^(?:FAILED|ERROR) (\S+)", ended.output, re.MULTILINE)
    reason = {} if counted else {"reason": ended.reason(DEADLINE)}
    return {**counts, "failures": failures, **reason}


def conformance(python: Path) -> dict[str, str]:
    """Return what half a minute of random programs found, by backend and engine."""
    options = ("--all", "--minutes", "0.5", "--seed", "1")
    ended = _run(python, "-m", "parallel_core", "conformance", *options)
    return dict(re.findall(r"^(\w+ on \w+): (.* programs.*)$", ended.output, re.MULTILINE))


def experiment(python: Path, name: str, framework: str) -> str:
    """Return what came of a short run of an experiment: how it ended, and why if it failed."""
    options = ("--backend", framework, "--budget", "5")
    ended = _run(python, "-m", "parallel_core", "run", name, *options)
    ends = {0: "measured", DISTURBED: "disturbed"}
    return ends.get(ended.status, ended.reason(DEADLINE))


def _run(python: Path, *arguments: str) -> Outcome:
    environment = ("env", f"--chdir={ROOT}", f"PYTHONPATH={ROOT}", "COLUMNS=1000")
    command = (*environment, str(python.absolute()), *arguments)
    return asyncio.run(supervise(command, DEADLINE, set()))


MEASUREMENT = Measurement(
    file="environments",
    title="Versions that work together",
    question="Do tests, random programs and experiments work with these versions?",
    method=Method(1, "2026-11-27", "random programs for half a minute, from one seed"),
    measure=measure,
    rounds=1,
    options=[click.argument("pythons", nargs=-1, type=click.Path(exists=True))],
)
