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
    return {
        re.split(r"[<>=;\[ ]", line)[0].lower() for line in requirements.split("\n") if line.strip()
    }


def read(root: Path) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(root / "setup.cfg")
    return parser


def test_every_direct_requirement_is_constrained(root: Path) -> None:
    config = read(root)
    wanted = names(config["options"]["install_requires"])
    for requirements in config["options.extras_require"].values():
        wanted |= names(requirements)
    lines = (root / "constraints.txt").read_text().splitlines()
    assert wanted <= {line.split("==")[0].lower() for line in lines if not line.startswith("#")}


def test_git_ignores_what_the_program_and_make_write(root: Path) -> None:
    made = [
        f"{RUNS}/comparison/report.html",
        ".venv/ready",
        "docs/_build/html/index.html",
        "dist/parallel_core.whl",
    ]
    ignored = subprocess.run(
        ["git", "check-ignore", *made], cwd=root, capture_output=True, text=True, check=True
    )
    assert ignored.stdout.split() == made


def test_only_mxnet_is_tied_to_the_old_numpy_and_its_cuda_build_has_the_wheels_that_are_loaded(
    root: Path,
) -> None:
    config = read(root)
    extras = config["options.extras_require"]
    assert [name for name in extras if "numpy<" in extras[name]] == ["mxnet", "mxnet-cu112"]
    assert "numpy>=" in config["options"]["install_requires"]
    lines = extras["mxnet-cu112"].split()
    assert [line for line in lines if line.startswith("nvidia-")] == [
        wheel.requirement for wheel in WHEELS
    ]


def test_the_citation_is_valid_and_of_this_version(root: Path) -> None:
    yaml = pytest.importorskip("yaml")
    citation = yaml.safe_load((root / "CITATION.cff").read_text())
    # What version 1.2.0 of the format asks for, and what it says of the types.
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= citation.keys()
    assert isinstance(citation["date-released"], datetime.date)
    assert all(author.keys() & {"name", "family-names"} for author in citation["authors"])
    for work in citation["references"]:
        assert {"type", "title", "authors"} <= work.keys()
    metadata = read(root)["metadata"]
    assert (citation["version"], citation["license"]) == (metadata["version"], metadata["license"])


def test_the_changelog_has_its_form_and_its_newest_release_is_this_version(root: Path) -> None:
    text = (root / "CHANGELOG.md").read_text()
    unreleased, (version, date), *_ = re.findall(r"^## \[(.+?)\](?: - (\S+))?$", text, re.MULTILINE)
    assert (unreleased, version) == (("Unreleased", ""), read(root)["metadata"]["version"])
    assert f"date-released: {date}\n" in (root / "CITATION.cff").read_text()
    kinds = re.findall(r"^### (.+)$", text, re.MULTILINE)
    assert {*kinds} <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
