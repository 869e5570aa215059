"""What stands on a page: the lines of its shell blocks, and its links to files."""

import re
import textwrap

__all__ = ["links", "shell_lines"]

BLOCK = re.compile(r"^( *)```sh\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!\w+:|#)([^)\s#]+)")
CODE = re.compile(r"^( *)```.*?^ *```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)


def shell_lines(text: str) -> list[str]:
    """Return the commands of a page's shell blocks, without comments; a line that goes on is one command."""
    blocks = "".join(textwrap.dedent(match[2]) for match in BLOCK.finditer(text)).replace("\\\n", " ")
    commands = (re.sub(r"(^|\s)#.*", "", line).strip() for line in blocks.splitlines())
    return [" ".join(command.split()) for command in commands if command]


def links(text: str) -> list[str]:
    """Return the files that a page links to or shows, as they stand there."""
    return LINK.findall(CODE.sub("", text))
