"""A page in Debian's Chromium, without a network."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

__all__ = ["Visit", "browser"]

CHROMIUM = shutil.which("chromium")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
]


@pytest.fixture(scope="package")
def browser() -> "Iterator[Browser]":
    """One Chromium for all tests of a folder, because it takes seconds to start; a skip where it is
    not installed.
    """
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed (apt-get install chromium)")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


class Visit:
    """A page that was opened, and what went wrong in it."""

    def __init__(
        self,
        browser: "Browser",
        path: Path,
        width: int,
        scheme: str = "light",
        scripts: bool = True,
    ) -> None:
        context = browser.new_context(
            viewport={"width": width, "height": 800},
            color_scheme=scheme,
            offline=True,
            java_script_enabled=scripts,
        )
        self.page: Page = context.new_page()
        self.troubles: list[str] = []
        self.page.on("console", lambda message: self.troubles.append(message.text))
        self.page.on("pageerror", lambda error: self.troubles.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.troubles.append("dialog"), dialog.dismiss()))
        # Offline, what it asks another host for fails.
        self.page.on(
            "requestfailed", lambda request: self.troubles.append(f"request to {request.url}")
        )
        self.page.goto(path.as_uri())

    def column(self, number: int) -> list[str]:
        return self.page.locator(f"#summary tbody tr td:nth-child({number})").all_inner_texts()
