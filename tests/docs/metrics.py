"""The metrics that the reference explains, by experiment."""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from tests.tree import tracked

__all__ = ["OF_ALL", "OF_COUNTS", "explained", "unexplained"]

OF_ALL = "Checks"
"""The heading above what any experiment may have."""
OF_COUNTS = "Counts"
"""The heading above what experiments count."""


@cache
def explained() -> dict[str, tuple[str, ...]]:
    """Return the names that are explained under each heading; `{…}` in a name stands for a word."""
    names: dict[str, tuple[str, ...]] = {}
    for page in tracked("docs/reference/metrics", suffix=".md"):
        for section in re.split("^## ", page.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
            terms = re.findall(r"^(`.+`)\n: ", section, re.MULTILINE)
            names[section.splitlines()[0]] = tuple(re.findall("`([^`]+)`", " ".join(terms)))
    return names


def unexplained(result: Mapping[str, Any]) -> set[str]:
    """Return those metrics and checks of a result, as JSON, that the pages do not explain for its
    experiment.
    """
    known = (*explained().get(result["experiment"], ()), *explained()[OF_ALL])
    patterns = [re.compile(re.sub(r"\\\{.*?\\\}", "[a-z0-9_]+", re.escape(name))) for name in known]
    names = (*result["metrics"], *result["checks"])
    return {name for name in names if not any(pattern.fullmatch(name) for pattern in patterns)}
