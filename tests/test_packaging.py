"""What setup.cfg promises: extras, entry points, and constraints for all that is installed."""

import configparser
import datetime
import re
import subprocess
from pathlib import Path

import pytest

from backends.mxnet.installation import WHEELS
from parallel_core.system.files import RUNS


def names(requirements: str) -> set[str]:
    """Return the names of the packages that are required, one a line."""
    lines = [line for line in requirements.split("\n") if line.strip()]
    return {re.split(r"[<>=;\[ ]", line)[0].lower() for line in lines}


def read(root: Path) -> configparser.ConfigParser:
    """Return what setup.cfg says."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(root / "setup.cfg")
    return parser


def test_every_direct_requirement_is_constrained(root: Path) -> None:
    config = read(root)
    required = names(config["options"]["install_requires"])
    for requirements in config["options.extras_require"].values():
        required |= names(requirements)
    lines = (root / "constraints.txt").read_text().splitlines()
    constrained = {line.split("==")[0].lower() for line in lines if not line.startswith("#")}
    assert required <= constrained


def test_the_hook_before_a_commit_has_the_pinned_ruff(root: Path) -> None:
    hooks = (root / ".pre-commit-config.yaml").read_text()
    pinned = re.findall(r"^ruff==.*$", (root / "constraints.txt").read_text(), re.MULTILINE)
    assert set(re.findall(r"ruff==[\d.]+", hooks)) == set(pinned)


def test_git_ignores_what_the_program_and_make_write(root: Path) -> None:
    written = [
        f"{RUNS}/comparison/report.html",
        ".venv/ready",
        ".venv-tools/ready",
        "docs/_build/html/index.html",
        "dist/parallel_core.whl",
    ]
    ignored = subprocess.run(
        ["git", "check-ignore", *written], cwd=root, capture_output=True, text=True, check=True
    )
    assert ignored.stdout.split() == written


def test_only_mxnet_is_tied_to_the_old_numpy(root: Path) -> None:
    config = read(root)
    extras = config["options.extras_require"]
    tied = [name for name, requirements in extras.items() if "numpy<" in requirements]
    assert tied == ["mxnet", "mxnet-cu112"]
    assert "numpy>=" in config["options"]["install_requires"]


def test_mxnet_s_cuda_build_requires_the_wheels_that_are_loaded(root: Path) -> None:
    requirements = read(root)["options.extras_require"]["mxnet-cu112"].split()
    of_nvidia = [requirement for requirement in requirements if requirement.startswith("nvidia-")]
    assert of_nvidia == [wheel.requirement for wheel in WHEELS]


def test_the_citation_is_valid_and_of_this_version(root: Path) -> None:
    yaml = pytest.importorskip("yaml")
    citation = yaml.safe_load((root / "CITATION.cff").read_text())
    # What version 1.2.0 of the format asks for, and what it says of the types.
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= citation.keys()
    assert isinstance(citation["date-released"], datetime.date)
    for work in citation["references"]:
        assert {"type", "title", "authors"} <= work.keys()
    metadata = read(root)["metadata"]
    for field in ("version", "license"):
        assert citation[field] == metadata[field]


def test_the_changelog_s_newest_release_is_this_version(root: Path) -> None:
    changelog = (root / "CHANGELOG.md").read_text()
    # Such as "## [Unreleased]" and "## [0.2.0] - 2026-05-30".
    headings = re.findall(r"^## \[(.+?)\](?: - (\S+))?$", changelog, re.MULTILINE)
    unreleased, (version, release_date) = headings[:2]
    assert unreleased == ("Unreleased", "")
    assert version == read(root)["metadata"]["version"]
    assert f"date-released: {release_date}\n" in (root / "CITATION.cff").read_text()
