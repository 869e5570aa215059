"""What a person sees of an experiment that is asked to explain itself, and of the variants that it can be run with."""

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding

from backends.variants import VARIANTS
from parallel_core.experiments.explanation import Explanation
from parallel_core.system.formatting import listed

__all__ = ["show_explanation", "show_variants"]


def show_explanation(explanation: Explanation, console: Console) -> None:
    """Print the question, and each part under its heading."""
    console.print(escape(explanation.question), style="bold")
    for heading, paragraphs in explanation.parts:
        console.print(f"\n[bold]{heading}[/]")
        for paragraph in paragraphs:
            console.print(Padding(escape(paragraph), (0, 0, 0, 2)))


def show_variants(console: Console) -> None:
    """Print every variant: its name, whether it is the default, who has it, and what it does."""
    console.print("\n[bold]Variants[/] (--variant NAME)")
    for variant in VARIANTS:
        default = ", the default" if variant.default else ""
        default += "" if variant.not_on_sync else "; on both engines"
        console.print(Padding(f"[bold]{variant.name}[/] ({listed(variant.backends)}{default})", (0, 0, 0, 2)))
        console.print(Padding(escape(variant.meaning), (0, 0, 0, 4)))
