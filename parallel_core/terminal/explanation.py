"""What a person sees of experiments: a line for each, what one says of itself, and the variants it
can be run with.
"""

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
"""From this width on the exercises stand in a column."""


def show_catalogue(
    experiments: Iterable[Experiment], backends: Sequence[str], console: Console
) -> None:
    """Print a line for each experiment, by chapter, with the exercises that it answers; and the
    backends.
    """
    console.print(
        Text.assemble(
            "parallel-core run NAME ", ("(--explain says more; --backend chooses)", ASIDE)
        )
    )
    every = [*experiments]
    name, longest = (
        max(map(len, texts))
        for texts in zip(*((one.name, one.summary) for one in every), strict=True)
    )
    for chapter, own in groupby(every, key=lambda experiment: experiment.chapter):
        console.print(chapter, style="bold")
        table = Table.grid(Column(width=name), Column(), padding=(0, 2, 0, 0))
        for one in own:
            padded = f"{one.summary:{longest}} " if console.width >= WIDE else one.summary
            table.add_row(one.name, Text.assemble(f"{padded} ", (_beside(one), ASIDE)))
        console.print(Padding(table, (0, 0, 0, 2)))
    console.print(Text.assemble(("Backends", "bold"), f": {', '.join(backends)}"))


def _beside(experiment: Experiment) -> str:
    """Write which exercises an experiment answers, with the option that one needs: `ex. 3, 4
    --trace`; and what it contains: `with increments`.
    """
    exercises = [
        f"{one.number} {one.edition} {one.options.partition(' ')[0]}".split()
        for one in experiment.exercises
    ]
    answered = "ex. " + ", ".join(map(" ".join, exercises)) if exercises else ""
    contained = f"with {', '.join(experiment.contains)}" if experiment.contains else ""
    return " ".join(filter(None, (answered, contained)))


@dataclass(frozen=True)
class Chosen:
    """What an experiment is to be run with, by which it is chosen what is said of variants."""

    settings: tuple[str, ...] | None
    """Those that make a difference in the experiment; None: all."""
    backends: tuple[str, ...]
    kinds: tuple[DeviceKind, ...]
    engine: str | None = None

    def why_not(self, variant: Variant) -> str | None:
        """Say where a variant applies that does not apply here, and how to see it there; None if it
        applies.
        """
        if self.settings is not None and variant.setting not in self.settings:
            return "in experiments that train (run data-parallel --explain)"
        found = found_on(variant.name)
        own = [kinds for name, kinds in found.items() if name in self.backends]
        if not own:
            name = next(iter(found))
            return f"of {name} (--explain --backend {name})"
        if not any(kind in self.kinds for kinds in own for kind in kinds):
            kind = next(kind for kinds in own for kind in kinds)
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
    """Print the variants that apply, each with who has it and what it does, and count the rest."""
    reasons = {variant.name: chosen.why_not(variant) for variant in all_variants()}
    shown = [variant for variant in all_variants() if reasons[variant.name] is None]
    console.print(
        Text.assemble(
            ("\nVariants", "bold"), " (--variant NAME)" if shown else ": none applies here"
        )
    )
    for variant in shown:
        default = ", the default" if variant.default else ""
        default += "" if variant.not_on_sync else "; on both engines"
        described = f" ({listed(in_words(variant.name))}{default})"
        console.print(Padding(Text.assemble((variant.name, "bold"), described), (0, 0, 0, 2)))
        console.print(Padding(variant.meaning, (0, 0, 0, 4)))
    counted = Counter(reason for reason in reasons.values() if reason is not None)
    if counted:
        console.print(
            "Elsewhere: "
            f"{', '.join(f'{count} more {reason}' for reason, count in counted.items())}."
        )
