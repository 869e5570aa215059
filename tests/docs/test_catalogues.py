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
    """Return all messages of the pages but the headers, each with its translation."""
    pairs = []
    for domain in DOMAINS:
        messages = [message for message in catalogue(language, domain) if message.id]
        pairs += [(str(message.id), str(message.string)) for message in messages]
    return pairs


def translated_entries(language: str) -> list[tuple[str, str]]:
    """Return the messages that have a translation, each with it."""
    return [(message, translation) for message, translation in entries(language) if translation]


@IN_EACH
def test_nothing_is_missing_fuzzy_or_obsolete(language: str) -> None:
    assert [message for message, translation in entries(language) if not translation.strip()] == []
    for domain in DOMAINS:
        messages = catalogue(language, domain)
        assert messages.locale_identifier == language
        assert [message.id for message in messages if message.id and message.fuzzy] == []
        assert list(messages.obsolete) == []


def tokens(text: str) -> Iterator[Token]:
    """Iterate over the tokens of a text: its blocks, and what is in them."""
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
            target = str(token.attrs.get("href", token.attrs.get("src")))
            # What README's first part links to is a page of the site in translations.
            parts[f"link {target.removeprefix('docs/')}"] += 1
        elif token.type in ("em_open", "strong_open"):
            parts[token.tag] += 1
    words = prose(text)
    words_alone = PLACEHOLDER.sub("", words)
    parts.update(f"placeholder {part}" for part in PLACEHOLDER.findall(words))
    parts.update(f"number {part}" for part in NUMBER.findall(words_alone))
    # Emphasis that the parser did not take for emphasis would be read as asterisks.
    parts.update(f"mark {part}" for part in re.findall(r"[*`]", words_alone))
    return parts


def changes(message: str, translation: str) -> list[str]:
    """Return the parts of which a translation has fewer or more than its message."""
    in_message, in_translation = markup(message), markup(translation)
    lost = [f"lost {part}" for part in in_message - in_translation]
    # What English writes as a word, another language may write in figures.
    added = [
        f"added {part}" for part in in_translation - in_message if not part.startswith("number ")
    ]
    return lost + added


@IN_EACH
def test_code_links_placeholders_numbers_and_emphasis_are_kept(language: str) -> None:
    for message, translation in translated_entries(language):
        assert changes(message, translation) == [], message


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
    spelt = []
    for term in tomllib.loads((LOCALES / "glossary.toml").read_text())["term"]:
        spelt += [(english, term[language]) for english in term["english"]]
    return sorted(spelt, key=lambda pair: -len(pair[0]))


def bare(text: str) -> str:
    """Return a text in which spaces and capitals make no difference."""
    return re.sub(r"\s+", "", text).lower()


def terms_without_their_word(language: str, message: str, translation: str) -> list[str]:
    """Return the terms of a message whose word its translation lacks. A longer term hides a shorter
    one within it.
    """
    missing = []
    bare_translation = bare(prose(translation))
    unread_message = prose(message)
    for english, words in glossary(language):
        term = re.compile(rf"(?<![\w-]){re.escape(english)}s?(?!\w)", re.IGNORECASE)
        # What was found is taken out, so that no shorter term is found in it.
        unread_message, count = term.subn("·", unread_message)
        if count and not any(bare(word) in bare_translation for word in words):
            missing.append(f"{english}: {', '.join(words)}")
    return missing


@IN_EACH
def test_every_term_is_translated_by_its_word(language: str) -> None:
    for message, translation in translated_entries(language):
        assert terms_without_their_word(language, message, translation) == [], message


def test_a_term_without_its_word_is_seen() -> None:
    entry = ("Ten asynchronous computations on `device`", "열 번의 비동기 연산")
    assert terms_without_their_word("ko", *entry) == ["asynchronous computation: 비동기 계산"]
