"""Where a figure of a page comes from: the file, the machine, the day, and whether its method is
today's.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.declared import METHODS
from benchmarks.harness.results import day_of, read_json

LINKED = re.compile(r"\]\(([^)\s]*benchmarks/results/[^)\s]+\.json)\)")
OLDER = "with the method of"
"""What a page says of figures that are measured by another method than today's."""


def source_of(folder: Path, documents: Mapping[str, Mapping[str, Any]]) -> str:
    """Link the files of a folder that hold what was measured, and say on what machine, when, and
    whether by an older method.

    The files say more: versions, kernels and the commit.
    """
    links_by_machine: dict[str, list[str]] = {}
    for name, document in documents.items():
        path = folder / name
        links = links_by_machine.setdefault(measured_on(path, document), [])
        links.append(f"[{path.stem}]({path})")
    sentences = []
    for machine, links in links_by_machine.items():
        sentences.append(f"Measured on {machine}: {', '.join(links)}.")
    return "\n" + " ".join(sentences)


def measured_on(path: Path, document: Mapping[str, Any]) -> str:
    """Name the machine and the day of measurements, and the method if it is older than today's:
    `AMD EPYC, 2 cores, 2026-11-26, with the method of that day`.
    """
    machine = document["machine"]
    measured = f"{machine['processor']}, {machine['cores']} cores, {day_of(machine)}"
    return f"{measured}, {OLDER} that day" if is_outdated(path, document) else measured


def is_outdated(path: Path, document: Mapping[str, Any]) -> bool:
    """Return whether a file of results holds what another method than today's measured.

    Raises KeyError if nobody declares how such a file is measured.
    """
    name = max((name for name in METHODS if path.stem.startswith(name)), key=len, default=path.stem)
    today = METHODS[name]
    if method := document.get("method"):
        return bool(method["number"] < today.number)
    # A file without a number was written before methods had one.
    return day_of(document["machine"]) < today.since


def unmarked(text: str, page: Path) -> Iterator[str]:
    """List the files with figures of an older method to which a paragraph of a page leads that does
    not say so.
    """
    for paragraph in re.split(r"\n\s*\n", text):
        for link in LINKED.findall(paragraph):
            path = page.parent / link
            document = read_json(path)
            if "machine" in document and is_outdated(path, document) and OLDER not in paragraph:
                yield link
