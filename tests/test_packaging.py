"""What setup.cfg promises: extras, entry points, and constraints for all that is installed."""

import configparser
import re
from pathlib import Path


def names(requirements: str) -> set[str]:
    return {re.split(r"[<>=;\[ ]", line)[0].lower() for line in requirements.split("\n") if line.strip()}


def read(root: Path) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(root / "setup.cfg")
    return parser


def test_every_direct_requirement_is_constrained(root: Path) -> None:
    config = read(root)
    wanted = names(config["options"]["install_requires"])
    for extra, requirements in config["options.extras_require"].items():
        # Two gigabytes of CUDA libraries, which the tests do not install.
        if extra != "mxnet-cu112":
            wanted |= names(requirements)
    lines = (root / "constraints.txt").read_text().splitlines()
    assert wanted <= {line.split("==")[0].lower() for line in lines if not line.startswith("#")}


def test_only_mxnet_is_tied_to_the_old_numpy(root: Path) -> None:
    config = read(root)
    assert "numpy<1.24" in config["options.extras_require"]["mxnet"]
    assert "numpy>=" in config["options"]["install_requires"]
    assert "numpy" not in config["options.extras_require"]["torch"]


def test_the_extras_are_the_promised_ones(root: Path) -> None:
    assert set(read(root)["options.extras_require"]) == {"mxnet", "mxnet-cu112", "torch", "plot", "test", "dev"}
