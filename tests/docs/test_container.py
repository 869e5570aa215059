"""The Dockerfile names what exists; `python -m tests.docs.container` runs it."""

import re

from backends.mxnet.installation import ARM_LIBRARIES
from tests.docs.container import DOCKERFILE, instructions
from tests.tree import ROOT

LINES = DOCKERFILE.read_text()
LINK = re.compile(r"ln -s (\S+) (?:\S+/)?(lib\w+\.so)")


def test_what_it_copies_is_there() -> None:
    names: list[str] = []
    for instruction, rest in instructions(LINES):
        if instruction == "COPY":
            *sources, _target = rest.split()
            names += sources
    assert {"Makefile", "backends", "parallel_core"} <= set(names)
    assert all((ROOT / name).exists() for name in names)


def test_mxnet_s_libraries_on_arm_are_those_of_the_doctor() -> None:
    assert LINK.findall(LINES) == LINK.findall(ARM_LIBRARIES) != []
