"""What setup.cfg promises: extras, entry points, and constraints for all that is installed."""

import configparser
import re
from pathlib import Path

from backends.installation.cuda_wheels import WHEELS


def names(requirements: str) -> set[str]:
    return {re.split(r"[<>=;\[ ]", line)[0].lower() for line in requirements.split("\n") if line.strip()}


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


def test_only_mxnet_is_tied_to_the_old_numpy(root: Path) -> None:
    config = read(root)
    assert "numpy<1.24" in config["options.extras_require"]["mxnet"]
    assert "numpy>=" in config["options"]["install_requires"]
    assert "numpy" not in config["options.extras_require"]["torch"]


def test_the_cuda_build_s_extra_holds_the_wheels_that_are_loaded(root: Path) -> None:
    lines = read(root)["options.extras_require"]["mxnet-cu112"].split()
    assert [line for line in lines if line.startswith("nvidia-")] == [wheel.requirement for wheel in WHEELS]


def test_the_extras_are_the_promised_ones(root: Path) -> None:
    assert set(read(root)["options.extras_require"]) == {"mxnet", "mxnet-cu112", "torch", "plot", "test", "dev", "docs"}
