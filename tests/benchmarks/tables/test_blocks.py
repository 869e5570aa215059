"""What stands between a block's marks is written, and nothing else is changed."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.tables.blocks import refill

LINES = st.text("ab|-<! \n", max_size=30)
NAMES = st.from_regex("[a-z-]{1,8}( [a-z-]{1,8}){0,2}", fullmatch=True)


FOLDER = Path("some/folder")
PAGE = Path("README.md")


def block(name: str, body: str) -> str:
    return f"<!-- table: {name} from some/folder -->\n{body}\n<!-- end -->"


def about(name: str, folder: Path) -> str:
    return f"| {name} in {folder} |"


@given(st.lists(st.tuples(LINES, NAMES, LINES), max_size=4), LINES)
def test_every_block_is_filled_once_and_for_all(parts: list[tuple[str, str, str]], last: str) -> None:
    text = "".join(f"{before}\n{block(name, body)}\n" for before, name, body in parts) + last
    filled = refill(text, PAGE, about)
    bodies = [f"\n{about(name, FOLDER)}\n" for _, name, _ in parts]
    expected = [f"{part[0]}\n{block(part[1], body)}\n" for part, body in zip(parts, bodies, strict=True)]
    assert filled == "".join(expected) + last
    assert refill(filled, PAGE, about) == filled


def test_another_folder_is_named_from_then_on() -> None:
    filled = refill(block("one", ""), PAGE, about, Path("other"))
    assert filled.splitlines()[0] == "<!-- table: one from other -->"
    assert "| one in other |" in filled


@pytest.mark.parametrize(
    ("written", "on_the_page"),
    [
        ("[all](some/file.json): 1 ms", "[all](../../some/file.json): 1 ms"),
        ("[all](docs/how-to/page.md)", "[all](../how-to/page.md)"),
        ("![it](some/it.png)", "![it](../../some/it.png)"),
        ("[all](https://example.org/all)", "[all](https://example.org/all)"),
        ("[all](#all), [a (b)]", "[all](#all), [a (b)]"),
    ],
)
def test_links_are_relative_to_the_page(written: str, on_the_page: str) -> None:
    filled = refill(block("one", ""), Path("docs/explanation/page.md"), lambda *_: written)
    assert filled == block("one", f"\n{on_the_page}\n")


@pytest.mark.parametrize(
    "text",
    [
        "<!-- table: one from folder -->\nno end\n",
        "<!-- table: one -->\n<!-- end -->\n",
        "    <!-- table: one from folder -->\n<!-- end -->\n",
        f"<!-- table: one from folder -->\n{block('two', '')}\n",
    ],
)
def test_a_block_that_would_be_passed_over_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="not of the form"):
        refill(text, PAGE, about)
