"""Which versions work together: `make test-matrix`, or by hand for environments that lie elsewhere.

    python -m benchmarks.harness.environments /opt/new/bin/python

In each environment run the backends' tests, random programs on every engine, and three experiments
on every framework.
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

from benchmarks.harness.findings import read_json, results_folder
from parallel_core.system.errors import DISTURBED
from parallel_core.system.files import write_json
from parallel_core.system.machine import ROOT, describe_machine
from parallel_core.system.subprocesses import Outcome, supervise

NAME = "environments.json"
EXPERIMENTS = ("async", "parallel", "overlap")
WHAT_IS_THERE = """
import json, platform
from importlib.metadata import version
from importlib.util import find_spec
found = [name for name in ("jax", "mxnet", "torch", "numpy") if find_spec(name)]
print(json.dumps({"python": platform.python_version(), **{name: version(name) for name in found}}))
"""
# The suite ends a test that hangs after 10 minutes: this is for what hangs outside of a test.
DEADLINE = 3600


@click.command()
@click.argument("pythons", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=results_folder)
def main(pythons: Sequence[Path], out: Path) -> None:
    """Try the environments of these Pythons, by default of those that make made; keep what is known
    of others.
    """
    path = out / NAME
    out.mkdir(parents=True, exist_ok=True)
    found = {
        tuple(one["versions"].items()): one
        for one in (read_json(path)["environments"] if path.exists() else ())
    }
    for python in pythons or made_by_make():
        one = tried(python)
        click.echo(json.dumps(one, indent=1))
        found[tuple(one["versions"].items())] = one
        write_json(
            path, {"schema": 1, "machine": describe_machine(), "environments": list(found.values())}
        )


def made_by_make() -> Iterator[Path]:
    """Iterate over the Pythons of the environments beside the sources that have pytest."""
    for folder in (".venv", ".venv-jax", ".venv-mxnet"):
        if (ROOT / folder / "bin/pytest").exists():
            yield ROOT / folder / "bin/python"


def tried(python: Path) -> dict[str, Any]:
    """Return what came of an environment, as JSON."""
    versions: dict[str, str] = json.loads(_run(python, "-c", WHAT_IS_THERE).output)
    frameworks = [name for name in versions if name not in ("python", "numpy")]
    return {
        "versions": versions,
        "utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "tests": tests(python, frameworks),
        "conformance": conformance(python),
        "experiments": {
            f"{name} on {framework}": experiment(python, name, framework)
            for framework, name in product(frameworks, EXPERIMENTS)
        },
    }


def tests(python: Path, frameworks: Sequence[str]) -> dict[str, Any]:
    """Return how many of the backends' tests passed, failed and were skipped, and the names of
    those that failed.
    """
    options = ("-p", "no:xdist", "-q", "-rfE", "-m", "not long", "--require", ",".join(frameworks))
    ended = _run(python, "-m", "pytest", *options, "tests/backends")
    (last,) = ended.output.splitlines()[-1:] or [""]
    counts = {
        what: int(number)
        for number, what in re.findall(r"(\d+) (passed|failed|skipped|error)", last)
    }
    return {
        "passed": counts.get("passed", 0),
        "failed": counts.get("failed", 0) + counts.get("error", 0),
        "skipped": counts.get("skipped", 0),
        "failures": re.findall(r"^(?:FAILED|ERROR) (\S+)", ended.output, re.MULTILINE),
        **({} if counts else {"reason": ended.reason(DEADLINE)}),
    }


def conformance(python: Path) -> dict[str, str]:
    """Return what half a minute of random programs found, by backend and engine."""
    ended = _run(
        python, "-m", "parallel_core", "conformance", "--all", "--minutes", "0.5", "--seed", "1"
    )
    return dict(re.findall(r"^(\w+ on \w+): (.* programs.*)$", ended.output, re.MULTILINE))


def experiment(python: Path, name: str, framework: str) -> str:
    """Return what came of a short run of an experiment: how it ended, and why if it failed."""
    ended = _run(
        python, "-m", "parallel_core", "run", name, "--backend", framework, "--budget", "5"
    )
    return {0: "measured", DISTURBED: "disturbed"}.get(ended.status, ended.reason(DEADLINE))


def _run(python: Path, *arguments: str) -> Outcome:
    with_sources = ["env", f"--chdir={ROOT}", f"PYTHONPATH={ROOT}", "COLUMNS=1000"]
    return asyncio.run(
        supervise([*with_sources, str(python.absolute()), *arguments], DEADLINE, set())
    )


if __name__ == "__main__":
    main()
