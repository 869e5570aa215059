"""The catalogues: whole, with everything in them that is no prose, and the same word for a term
wherever it stands.
"""

import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from babel.messages.catalog import Catalog
from babel.messages.pofile import read_po
from markdown_it import MarkdownIt
from markdown_it.token import Token

from tests.docs.pages import LANGUAGES
from tests.tree import ROOT

LOCALES = ROOT / "docs" / "locales"
DOMAINS = ("guides", "sphinx")
IN_EACH = pytest.mark.parametrize("language", LANGUAGES)
MARKDOWN = MarkdownIt("commonmark")
# Python's and Jinja's placeholders, roles before a code span, and formulas.
PLACEHOLDER = re.compile(r"%\(\w+\)[sd]|\{\{.*?\}\}|\{[\w:.-]+\}|\$[^$\n]+\$")
NUMBER = re.compile(r"\d+(?:[.,\u202f ]\d+)*")
CODE = ("code_inline", "html_inline", "html_block", "code_block", "fence")


@cache
def catalogue(language: str, domain: str) -> Catalog:
    with (LOCALES / language / "LC_MESSAGES" / f"{domain}.po").open("rb") as file:
        return read_po(file, domain=domain, abort_invalid=True)


def entries(language: str) -> list[tuple[str, str]]:
    """Return all messages of the pages but the headers, each with what it is in a language."""
    read = (message for domain in DOMAINS for message in catalogue(language, domain) if message.id)
    return [(str(message.id), str(message.string)) for message in read]


def test_there_is_one_for_each_language() -> None:
    assert {path.name for path in LOCALES.iterdir() if path.is_dir()} == {*LANGUAGES}
    assert f"LANGUAGES := {' '.join(LANGUAGES)}\n" in (ROOT / "Makefile").read_text()


@IN_EACH
def test_nothing_is_missing_fuzzy_or_obsolete(language: str) -> None:
    assert [message for message, translation in entries(language) if not translation.strip()] == []
    for read in (catalogue(language, domain) for domain in DOMAINS):
        assert read.locale_identifier == language
        assert [message.id for message in read if message.id and message.fuzzy] == []
        assert [*read.obsolete] == []


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


def changes(message: str, translation: str) -> list[str]:
    """Return the parts of which a translation has fewer or more than its message."""
    said, translated = markup(message), markup(translation)
    # What English writes as a word, another language may write in figures.
    added = (f"added {part}" for part in translated - said if not part.startswith("number "))
    return [*(f"lost {part}" for part in said - translated), *added]


@IN_EACH
def test_code_links_placeholders_numbers_and_emphasis_are_kept(language: str) -> None:
    translated = (entry for entry in entries(language) if entry[1])
    assert {entry: changed for entry in translated if (changed := changes(*entry))} == {}


@pytest.mark.parametrize(
    ("message", "translation"),
    [
        ("See `waitall` first.", "먼저 waitall을 보십시오."),
        ("See [the guide](a.md).", "[안내](b.md)를 보십시오."),
        ("Made by %(name)s", "제작"),
        ("It took **two** steps", "**'두'**단계가 걸렸습니다"),
        ("On 2 devices", "3개의 장치에서"),
        ("{doc}`guide`", "`guide`"),
    ],
)
def test_what_is_lost_is_seen(message: str, translation: str) -> None:
    assert any(change.startswith("lost ") for change in changes(message, translation))


@pytest.mark.long
def test_they_hold_what_the_pages_say_now(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-q",
        "-W",
        "-b",
        "gettext",
        "-t",
        "for_translators",
        "docs",
        tmp_path,
    ]
    subprocess.run(command, cwd=ROOT, check=True)
    for domain in DOMAINS:
        with (tmp_path / f"{domain}.pot").open("rb") as file:
            said = {message.id for message in read_po(file)}
        for language in LANGUAGES:
            assert {message.id for message in catalogue(language, domain)} == said, (
                "make translations"
            )


@cache
def glossary(language: str) -> list[tuple[str, list[str]]]:
    """Return how English writes each term of the field, longer ones first, and its words, any of
    which may stand.
    """
    terms = tomllib.loads((LOCALES / "glossary.toml").read_text())["term"]
    spelt = [(english, term[language]) for term in terms for english in term["english"]]
    return sorted(spelt, key=lambda pair: -len(pair[0]))


def bare(text: str) -> str:
    """Return a text in which spaces and capitals make no difference."""
    return re.sub(r"\s+", "", text).lower()


def terms_without_their_word(language: str, message: str, translation: str) -> list[str]:
    """Return the terms of a message whose word its translation lacks. A longer term hides a shorter
    one within it.
    """
    translated, rest, missing = bare(prose(translation)), prose(message), []
    for english, words in glossary(language):
        rest, count = re.subn(
            rf"(?<![\w-]){re.escape(english)}s?(?!\w)", "·", rest, flags=re.IGNORECASE
        )
        if count and not any(bare(word) in translated for word in words):
            missing.append(f"{english}: {', '.join(words)}")
    return missing


@IN_EACH
def test_every_term_has_a_word_stands_once_and_is_translated_by_it(language: str) -> None:
    assert all(words and all(words) for _, words in glossary(language))
    spelt = [english.lower() for english, _ in glossary(language)]
    assert len(spelt) == len({*spelt})
    translated = (entry for entry in entries(language) if entry[1])
    assert {
        entry: wrong
        for entry in translated
        if (wrong := terms_without_their_word(language, *entry))
    } == {}


def test_a_term_without_its_word_is_seen() -> None:
    entry = ("Ten asynchronous computations on `device`", "열 번의 비동기 연산")
    assert terms_without_their_word("ko", *entry) == ["asynchronous computation: 비동기 계산"]
