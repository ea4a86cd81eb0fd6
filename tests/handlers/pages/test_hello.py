"""The chat page with a real model: what each dialect answers is what the chat answers."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from lmi_handlers.testing import running_server
from tests.handlers.pages.browser import watched_page
from tests.handlers.pages.steps import (
    answered,
    answers,
    ask,
    choose_dialect,
    send_request,
    set_parameter,
    show_probabilities,
)
from tests.handlers.pages.test_requests import CHAT, TEXT

pytestmark = pytest.mark.asyncio(loop_scope="session")

HELLO = Path(__file__).parents[3] / "examples" / "hello"
QUESTION = "What is Deep Learning?"
GREEDY = {"temperature": "0", "max_tokens": "24"}
SAMPLED = {"temperature": "1.5", "top_k": "20", "max_tokens": "24", "seed": "11"}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def url() -> AsyncIterator[str]:
    async with running_server(HELLO) as running:
        yield running.server.url


@pytest.mark.parametrize("parameters", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("mode", ["chat", "text"])
async def test_every_dialect_gives_the_same_text(
    browser: Browser, url: str, parameters: dict[str, str], mode: str
) -> None:
    async with watched_page(browser, url) as page:
        await page.locator(f"[name=mode][value={mode}]").check()
        for name, value in parameters.items():
            await set_parameter(page, name, value)
        said = await ask(page, QUESTION)
        assert said.strip()
        for dialect in CHAT if mode == "chat" else TEXT:
            await choose_dialect(page, dialect)
            await send_request(page)
            assert (await page.locator("#requests .text").inner_text()).strip() == said.strip(), dialect


async def test_the_example_questions_are_answered(browser: Browser, url: str) -> None:
    async with watched_page(browser, url) as page:
        questions = page.locator(".questions button")
        await expect(questions).to_have_count(4)
        await set_parameter(page, "temperature", "0")
        await questions.filter(has_text="France").click()
        assert await answered(page) == "The capital of France is Paris."
        await expect(page.locator("#text")).to_be_focused()


async def test_probabilities_of_a_real_answer(browser: Browser, url: str) -> None:
    async with watched_page(browser, url) as page:
        await set_parameter(page, "temperature", "0")
        assert await ask(page, QUESTION) == "Deep Learning is a really cool field."
        await show_probabilities(page)
        assert "".join(await answers(page).locator(".token").all_text_contents()) == (
            "Deep Learning is a really cool field."
        )
        await answers(page).locator(".token").nth(3).hover()
        rows = page.locator("#token-details td")
        await expect(rows).to_have_count(5)
        shares = [float(text.replace("< ", "").removesuffix(" %")) for text in await rows.all_inner_texts()]
        assert shares == sorted(shares, reverse=True)
        assert sum(shares) <= 101


async def test_the_console_shows_the_worker(browser: Browser, url: str) -> None:
    async with watched_page(browser, url) as page:
        await ask(page, QUESTION)
    async with watched_page(browser, url, path="/console", ready="#models tbody tr") as page:
        row = page.locator("#models tbody tr")
        await expect(row.locator('[data-label="Memory"]')).to_have_text(re.compile(r"[\d.]+ [MG]Bprocess \d+"))
        await expect(row.locator('[data-label="Tokens per second"]')).to_contain_text(re.compile(r"[1-9]\d* generated"))
        await expect(row.locator('[data-label="Queue"]')).to_contain_text("0 running, 0 waiting")
