"""The catalogues: whole, and with everything in them that is no prose."""

import subprocess
import sys
from pathlib import Path

import pytest
from babel.messages.pofile import read_po

from tests.docs.pages import LANGUAGES
from tests.docs.translations.catalogues import DOMAINS, LOCALES, Entry, catalogue, entries
from tests.docs.translations.markup import markup
from tests.tree import ROOT

IN_EACH = pytest.mark.parametrize("language", LANGUAGES)


def test_there_is_one_for_each_language() -> None:
    assert {path.name for path in LOCALES.iterdir() if path.is_dir()} == {*LANGUAGES}
    assert f"LANGUAGES := {' '.join(LANGUAGES)}\n" in (ROOT / "Makefile").read_text()


@IN_EACH
def test_nothing_is_missing_fuzzy_or_obsolete(language: str) -> None:
    assert [entry.message for entry in entries(language) if not entry.translation.strip()] == []
    for read in (catalogue(language, domain) for domain in DOMAINS):
        assert read.locale_identifier == language
        assert [message.id for message in read if message.id and message.fuzzy] == []
        assert [*read.obsolete] == []


@IN_EACH
def test_code_links_placeholders_numbers_and_emphasis_are_kept(language: str) -> None:
    changed = {
        entry.message: {"lost": lost(entry), "added": added(entry)}
        for entry in entries(language)
        if entry.translation and (lost(entry) or added(entry))
    }
    assert changed == {}


def lost(entry: Entry) -> dict[str, int]:
    return dict(markup(entry.message) - markup(entry.translation))


def added(entry: Entry) -> dict[str, int]:
    more = markup(entry.translation) - markup(entry.message)
    # What English writes as a word, another language may write in figures.
    return {part: count for part, count in more.items() if not part.startswith("number ")}


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
    assert lost(Entry(message, translation))


@pytest.mark.long
def test_they_hold_what_the_pages_say_now(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "-b", "gettext", "-t", "for_translators", "docs", tmp_path]
    subprocess.run(command, cwd=ROOT, check=True)
    for domain in DOMAINS:
        with (tmp_path / f"{domain}.pot").open("rb") as file:
            said = {message.id for message in read_po(file)}
        for language in LANGUAGES:
            assert {message.id for message in catalogue(language, domain)} == said, "make translations"
