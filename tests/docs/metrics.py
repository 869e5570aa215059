"""The metrics that the reference explains, by experiment."""

import itertools
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from docs._extensions.described_metrics import described
from tests.tree import ROOT

__all__ = ["OF_ALL", "explained", "unexplained"]

OF_ALL = "Checks"
"""The heading above what any experiment may have."""


@cache
def explained() -> dict[str, tuple[str, ...]]:
    """Return the names that are explained of each experiment, and under OF_ALL those of the page's
    section; `{…}` in a name stands for a word.
    """
    names_of = {}
    for experiment, names_by_text in described().items():
        names_of[experiment] = tuple(itertools.chain.from_iterable(names_by_text))

    page = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    _, _, section = page.partition(f"## {OF_ALL}\n")
    # A term stands on a line of its own, before its explanation, and may have several names.
    terms = re.findall(r"^(`.+`)\n: ", section, re.MULTILINE)
    names_of[OF_ALL] = tuple(re.findall("`([^`]+)`", " ".join(terms)))
    return names_of


def unexplained(result: Mapping[str, Any]) -> set[str]:
    """Return those metrics and checks of a result, as JSON, that the pages do not explain for its
    experiment.
    """
    explained_names = (*explained().get(result["experiment"], ()), *explained()[OF_ALL])
    patterns = [_pattern_of(name) for name in explained_names]
    names = (*result["metrics"], *result["checks"])
    return {name for name in names if not any(pattern.fullmatch(name) for pattern in patterns)}


def _pattern_of(name: str) -> re.Pattern[str]:
    """Return what matches a name, with any word in the place of each `{…}`."""
    escaped = re.escape(name)
    return re.compile(re.sub(r"\\\{.*?\\\}", "[a-z0-9_]+", escaped))
