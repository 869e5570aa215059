"""The metrics that the reference explains, by experiment."""

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
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    section = page.partition(f"## {OF_ALL}\n")[2]
    terms = re.findall(r"^(`.+`)\n: ", section, re.MULTILINE)
    own = {
        name: tuple(one for names in texts for one in names) for name, texts in described().items()
    }
    return {**own, OF_ALL: tuple(re.findall("`([^`]+)`", " ".join(terms)))}


def unexplained(result: Mapping[str, Any]) -> set[str]:
    """Return those metrics and checks of a result, as JSON, that the pages do not explain for its
    experiment.
    """
    known = (*explained().get(result["experiment"], ()), *explained()[OF_ALL])
    patterns = [re.compile(re.sub(r"\\\{.*?\\\}", "[a-z0-9_]+", re.escape(name))) for name in known]
    names = (*result["metrics"], *result["checks"])
    return {name for name in names if not any(pattern.fullmatch(name) for pattern in patterns)}
