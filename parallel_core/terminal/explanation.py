"""Print experiments for people: a line for each, the explanation of one, and its variants."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.console import Console
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

from backends.devices import DeviceKind
from backends.registry.variants import Variant, all_variants, found_on, in_words
from parallel_core.experiments import Experiment
from parallel_core.experiments.explanation import Explanation
from parallel_core.system.formatting import listed
from parallel_core.terminal.console import ASIDE

WIDE = 80
"""The width of a terminal from which on the exercises form a column."""


def show_catalogue(
    experiments: Iterable[Experiment], backends: Sequence[str], console: Console
) -> None:
    """Print a line for each experiment, by chapter, with its exercises; then the backends."""
    hint = ("(--explain says more; --backend chooses)", ASIDE)
    console.print(Text.assemble("parallel-core run NAME ", hint))
    experiments = list(experiments)
    longest_name = max(len(experiment.name) for experiment in experiments)
    longest_question = max(len(experiment.question) for experiment in experiments)
    for chapter, of_chapter in groupby(experiments, key=lambda experiment: experiment.chapter):
        console.print(chapter, style="bold")
        table = Table.grid(Column(width=longest_name), Column(), padding=(0, 2, 0, 0))
        for experiment in of_chapter:
            question = experiment.question
            if console.width >= WIDE:
                question = question.ljust(longest_question + 1)
            answers = (_exercises_and_parts(experiment), ASIDE)
            table.add_row(experiment.name, Text.assemble(f"{question} ", answers))
        console.print(Padding(table, (0, 0, 0, 2)))
    console.print(Text.assemble(("Backends", "bold"), f": {', '.join(backends)}"))


def _exercises_and_parts(experiment: Experiment) -> str:
    """Write the exercises that an experiment answers, and its parts.

    For example `ex. 3, 4 --trace`, with the option that exercise 4 needs, or `with increments`.
    """
    exercises = []
    for exercise in experiment.exercises:
        option, _, _ = exercise.options.partition(" ")
        words = (str(exercise.number), exercise.edition, option)
        exercises.append(" ".join(filter(None, words)))
    written = []
    if exercises:
        written.append("ex. " + ", ".join(exercises))
    if experiment.contains:
        written.append("with " + ", ".join(experiment.contains))
    return " ".join(written)


@dataclass(frozen=True)
class Chosen:
    """The choices of a run, which decide the variants that apply to it."""

    settings: tuple[str, ...] | None
    """The settings of variants that matter to the experiment; None: all settings."""
    backends: tuple[str, ...]
    kinds: tuple[DeviceKind, ...]
    """The kinds of devices."""
    engine: str | None = None

    def why_not(self, variant: Variant) -> str | None:
        """Say where a variant applies if not here, and how to see it there; None if it applies."""
        if self.settings is not None and variant.setting not in self.settings:
            return "in experiments that train (run data-parallel --explain)"
        kinds_by_backend = found_on(variant.name)
        kinds: list[DeviceKind] = []
        for name, kinds_of_backend in kinds_by_backend.items():
            if name in self.backends:
                kinds += kinds_of_backend
        if not kinds:
            name = next(iter(kinds_by_backend))
            return f"of {name} (--explain --backend {name})"
        if not any(kind in self.kinds for kind in kinds):
            kind = kinds[0]
            return f"on {kind.upper()}s (--explain --device-kind {kind})"
        if self.engine == "sync" and variant.not_on_sync:
            return "on the other engine (--explain --engine async)"
        return None


def show_explanation(explanation: Explanation, console: Console) -> None:
    """Print the question, and each part under its heading."""
    console.print(explanation.question, style="bold")
    for heading, paragraphs in explanation.parts:
        console.print(f"\n{heading}", style="bold")
        for paragraph in paragraphs:
            console.print(Padding(paragraph, (0, 0, 0, 2)))


def show_variants(console: Console, chosen: Chosen) -> None:
    """Print the variants that apply, with their backends and meanings, and count the others."""
    applying: list[Variant] = []
    reasons: Counter[str] = Counter()
    for variant in all_variants():
        reason = chosen.why_not(variant)
        if reason is None:
            applying.append(variant)
        else:
            reasons[reason] += 1
    hint = " (--variant NAME)" if applying else ": none applies here"
    console.print(Text.assemble(("\nVariants", "bold"), hint))
    for variant in applying:
        described = listed(in_words(variant.name))
        if variant.default:
            described += ", the default"
        if not variant.not_on_sync:
            described += "; on both engines"
        heading = Text.assemble((variant.name, "bold"), f" ({described})")
        console.print(Padding(heading, (0, 0, 0, 2)))
        console.print(Padding(variant.meaning, (0, 0, 0, 4)))
    if reasons:
        elsewhere = [f"{count} more {reason}" for reason, count in reasons.items()]
        console.print(f"Elsewhere: {', '.join(elsewhere)}.")
