"""`parallel-core profile` records a JAX program, and leaves it its own profiles."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from parallel_core.traces.ranks.reading import read_ranks
from tests.parallel_core.traces.profile.recorded_programs import EXAMPLES

Require = Callable[[str], None]

STEPS = 12


def profiled(folder: Path, *arguments: str) -> dict[str, Any]:
    """Profile the program, which must end as it would alone; return the JSON document."""
    document = folder / "all.json"
    profile = [sys.executable, "-m", "parallel_core", "profile", "--output", str(folder / "out")]
    program = (str(EXAMPLES / "plain_jax.py"), str(STEPS))
    command = [*profile, "--json", str(document), "--", *program, *arguments]
    two_devices = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=300, env=two_devices, check=False
    )
    assert (ended.returncode, ended.stdout) == (0, "done\n"), ended.stderr
    written: dict[str, Any] = json.loads(document.read_text())
    return written


@pytest.mark.long
def test_the_steps_that_a_jax_program_annotates_are_recorded(
    tmp_path: Path, require: Require
) -> None:
    require("jax")
    (process,) = profiled(tmp_path)["processes"]
    assert process["framework"] == "jax"
    assert (process["marker"], process["steps_recorded"]) == ("profiler", 5)
    (rank,) = read_ranks([Path(process["trace"])]).values()
    (figures,) = rank.figures
    assert figures.steps is not None
    assert len(figures.steps.steps) == 5
    assert figures.compute_seconds > 0


@pytest.mark.long
def test_a_jax_program_s_own_profile_is_left_to_it(tmp_path: Path, require: Require) -> None:
    require("jax")
    own = tmp_path / "own"
    (process,) = profiled(tmp_path, str(own))["processes"]
    assert process["steps_seen"] == STEPS
    assert process["trace"] is None
    assert len(list(own.rglob("*.trace.json.gz"))) == 1
