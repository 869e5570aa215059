"""What a reader must know before he trusts a recording."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Doubt:
    """A sentence for people, and its code for programs."""

    code: str
    sentence: str

    def __str__(self) -> str:
        return self.sentence
