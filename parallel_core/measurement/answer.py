"""A result's answer to its exercise's question, for the machine that measured it."""

from dataclasses import dataclass

WHAT_WOULD_CHANGE_IT = "What would change it:"
"""What stands before `would_change` wherever an answer is read."""


@dataclass(frozen=True)
class Answer:
    """Two or three sentences, each with its figure, and what would change them.

    All of them end with a full stop, and claim no more than intervals show. The first one is the result's explanation.
    `would_change` follows from the result if it can, and names an option of the program if one would do:
    `A second worker for each device (--workers 2).`
    """

    sentences: tuple[str, ...]
    would_change: str
