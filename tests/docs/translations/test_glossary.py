"""The glossary: a term of the field has the same word wherever it stands, the one that the chapters' readers know."""

import re

import pytest

from tests.docs.pages import LANGUAGES
from tests.docs.translations.catalogues import Entry, Term, entries, glossary
from tests.docs.translations.markup import prose

IN_EACH = pytest.mark.parametrize("language", LANGUAGES)


def bare(text: str) -> str:
    """Return a text in which spaces and capitals make no difference."""
    return re.sub(r"\s+", "", text).lower()


def terms_without_their_word(entry: Entry, terms: list[Term]) -> list[str]:
    """Return the terms of a message whose word its translation lacks. A longer term hides a shorter one within it."""
    translation = bare(prose(entry.translation))
    rest = prose(entry.message)
    missing = []
    spelt = [(english, term) for term in terms for english in term.english]
    for english, term in sorted(spelt, key=lambda pair: -len(pair[0])):
        rest, count = re.subn(rf"(?<![\w-]){re.escape(english)}s?(?!\w)", "·", rest, flags=re.IGNORECASE)
        if count and not any(bare(word) in translation for word in term.words):
            missing.append(f"{english}: {', '.join(term.words)}")
    return missing


@IN_EACH
def test_every_term_has_its_word(language: str) -> None:
    terms = glossary(language)
    wrong = {
        entry.message: (entry.translation, missing)
        for entry in entries(language)
        if entry.translation and (missing := terms_without_their_word(entry, terms))
    }
    assert wrong == {}


def test_a_term_without_its_word_is_seen() -> None:
    entry = Entry("Ten asynchronous computations on `device`", "열 번의 비동기 연산")
    assert terms_without_their_word(entry, glossary("ko")) == ["asynchronous computation: 비동기 계산"]


@IN_EACH
def test_every_term_has_a_word_and_stands_once(language: str) -> None:
    assert all(term.words and all(term.words) for term in glossary(language))
    spelt = [english.lower() for term in glossary(language) for english in term.english]
    assert sorted(spelt) == sorted({*spelt})
