"""A run that requires a framework which cannot be loaded fails as a whole, and skips with the
reason otherwise.
"""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.conftest import FRAMEWORKS

SHARD = "test_a_single_shard_does_not_share_memory_with_its_source"
ONE_TEST = f"tests/backends/protocol/test_memory.py::{SHARD}[torch]"


def run_without_torch(
    root: Path, folder: Path, *options: str
) -> "subprocess.CompletedProcess[str]":
    (folder / "torch.py").write_text("raise ModuleNotFoundError('hidden', name='torch')\n")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-rs", "-p", "no:cacheprovider", *options, ONE_TEST],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_required_framework_that_cannot_be_loaded_fails_the_run(
    root: Path, tmp_path: Path
) -> None:
    done = run_without_torch(root, tmp_path, "-n", "1", "--require", "torch")
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "torch is required and cannot be loaded: " in done.stdout + done.stderr


def test_any_other_is_skipped_with_the_reason(root: Path, tmp_path: Path) -> None:
    done = run_without_torch(root, tmp_path)
    assert done.returncode == 0, done.stdout
    assert "PyTorch is not installed: pip install" in done.stdout
    absent = ", ".join(name for name in FRAMEWORKS if find_spec(name) is None and name != "torch")
    assert re.findall("^left out: (.*), not installed", done.stdout, re.MULTILINE) == (
        [absent] if absent else []
    )
