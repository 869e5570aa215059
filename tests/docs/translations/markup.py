"""What of a message is no prose, and stays in its translation: code, links, placeholders, numbers, emphasis."""

import re
from collections import Counter
from collections.abc import Iterator

from markdown_it import MarkdownIt
from markdown_it.token import Token

MARKDOWN = MarkdownIt("commonmark")
# Python's and Jinja's placeholders, roles before a code span, and formulas.
PLACEHOLDER = re.compile(r"%\(\w+\)[sd]|\{\{.*?\}\}|\{[\w:.-]+\}|\$[^$\n]+\$")
NUMBER = re.compile(r"\d+(?:[.,\u202f ]\d+)*")
CODE = ("code_inline", "html_inline", "html_block", "code_block", "fence")


def tokens(text: str) -> Iterator[Token]:
    for block in MARKDOWN.parse(text):
        yield block
        yield from block.children or []


def prose(text: str) -> str:
    """Return what a message says, without its code and without where its links lead."""
    return " ".join(token.content for token in tokens(text) if token.type == "text")


def markup(text: str) -> Counter[str]:
    """Count the parts of a message that a translation must have as often."""
    parts: Counter[str] = Counter()
    for token in tokens(text):
        if token.type in CODE:
            parts[f"code {token.content}"] += 1
        elif token.type in ("link_open", "image"):
            parts[f"link {token.attrs.get('href', token.attrs.get('src'))}"] += 1
        elif token.type in ("em_open", "strong_open"):
            parts[token.tag] += 1
    said = prose(text)
    rest = PLACEHOLDER.sub("", said)
    parts.update(f"placeholder {part}" for part in PLACEHOLDER.findall(said))
    parts.update(f"number {part}" for part in NUMBER.findall(rest))
    # Emphasis that the parser did not take for emphasis would be read as asterisks.
    parts.update(f"mark {part}" for part in re.findall(r"[*`]", rest))
    return parts
