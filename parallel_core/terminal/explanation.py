"""What a person sees of an experiment that is asked to explain itself."""

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding

from parallel_core.explanation import Explanation

__all__ = ["show_explanation"]


def show_explanation(explanation: Explanation, console: Console) -> None:
    """Print the question, and each part under its heading."""
    console.print(escape(explanation.question), style="bold")
    for heading, paragraphs in explanation.parts:
        console.print(f"\n[bold]{heading}[/]")
        for paragraph in paragraphs:
            console.print(Padding(escape(paragraph), (0, 0, 0, 2)))
