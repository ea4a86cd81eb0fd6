"""A Chromium that tests share, and pages in it that watch what the browser complains of."""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from playwright.async_api import Browser, BrowserContext, Page, async_playwright, expect

VARIABLE = "LMI_CHROMIUM"  # environment variable: the path of the browser
# The first takes a third of the processor time of the others, which draw what nobody sees.
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MISSING = (
    "the tests of the pages need Chromium: `make programs` installs Debian's, as root; or give the path of another in "
    f"{VARIABLE}"
)
TIMEOUT_MS = 60_000  # on a machine that does much else


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """Start the browser. Fail the test where none is installed."""
    path = os.environ.get(VARIABLE) or next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.fail(MISSING, pytrace=False)
    expect.set_options(timeout=TIMEOUT_MS)
    as_root = ["--no-sandbox"] if os.geteuid() == 0 else []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=as_root)
        yield browser
        await browser.close()


class Watched:
    """What a page did that it must not do: complaints in its console, errors, and requests to other hosts."""

    def __init__(self, context: BrowserContext, url: str, expected: tuple[str, ...]) -> None:
        self.complaints: list[str] = []
        self._url = url
        self._expected = expected
        context.on("page", self._watch)

    def _watch(self, page: Page) -> None:
        page.on("console", lambda message: self._complain(message.type, message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: self._requested(request.url))

    def _complain(self, kind: str, text: str) -> None:
        if kind in ("error", "warning") and not any(each in text for each in self._expected):
            self.complaints.append(text)

    def _requested(self, url: str) -> None:
        if not url.startswith((f"{self._url}/", "data:")):
            self.complaints.append(f"request to {url}")


@asynccontextmanager
async def watched_page(
    browser: Browser,
    url: str,
    *,
    path: str = "/",
    expected: tuple[str, ...] = (),
    ready: str = "#model option",
    **options: Any,
) -> AsyncIterator[Page]:
    """Open a page, and fail where the browser complained, but for texts that are `expected`.

    `ready` is a selector of what the page has once it is there.
    """
    context = await browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
    context.set_default_timeout(TIMEOUT_MS)
    watched = Watched(context, url, expected)
    page = await context.new_page()
    await page.goto(f"{url}{path}")
    await page.locator(ready).first.wait_for(state="attached")
    yield page
    await context.close()
    assert watched.complaints == []
