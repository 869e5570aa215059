"""How much code there is, per room: `python -m benchmarks.harness.lines`, of what git tracks.

Lines are all lines of Python; code is those with something else than a docstring, a comment or
nothing on them.
"""

import ast
import subprocess
from collections import Counter
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from tokenize import COMMENT, DEDENT, ENCODING, ENDMARKER, INDENT, NEWLINE, NL, generate_tokens

ROOT = Path(__file__).resolve().parent.parent.parent
LAYOUT = {COMMENT, DEDENT, ENCODING, ENDMARKER, INDENT, NEWLINE, NL}
PAGES = (".jinja", ".js", ".css")


def docstring_lines(source: str) -> set[int]:
    """Return the numbers of the lines that docstrings take: of modules, classes, functions and
    attributes.
    """
    nodes = (node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Expr))
    texts = (
        node for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    return {
        line for node in texts for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def code_lines(source: str) -> int:
    """Return how many lines hold code."""
    tokens = (
        token for token in generate_tokens(StringIO(source).readline) if token.type not in LAYOUT
    )
    return len(
        {line for token in tokens for line in range(token.start[0], token.end[0] + 1)}
        - docstring_lines(source)
    )


def rows() -> Iterator[tuple[str, int, int, int]]:
    """Return the modules, lines and lines of code of every room, and of each package."""
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    counts: dict[str, Counter[str]] = {}
    for path in map(Path, filter(None, tracked.split("\0"))):
        package = path.parts[0]
        room = (
            "/".join(path.parts[:2])
            if len(path.parts) > 2 and package in ("backends", "parallel_core")
            else package
        )
        if path.suffix in PAGES and package == "parallel_core":
            counts.setdefault("pages", Counter())["lines"] += len(
                (ROOT / path).read_text().splitlines()
            )
        if path.suffix != ".py" or package not in (
            "backends",
            "parallel_core",
            "benchmarks",
            "tests",
        ):
            continue
        source = (ROOT / path).read_text()
        both = ["backends + parallel_core"] if package in ("backends", "parallel_core") else []
        for name in {package, room, *both}:
            count = counts.setdefault(name, Counter())
            count.update(modules=1, lines=len(source.splitlines()), code=code_lines(source))
    for name, count in sorted(counts.items()):
        yield name, count["modules"], count["lines"], count["code"]


if __name__ == "__main__":
    print(f"{'':42}{'modules':>8}{'lines':>8}{'code':>8}")
    for name, *numbers in rows():
        print(f"{name:42}" + "".join(f"{number:8,}" for number in numbers))
