"""Tokens with their probabilities, by pointer and by keyboard, and the whole page by keyboard alone."""

import asyncio

import pytest
from playwright.async_api import expect

from tests.handlers.pages.conftest import OpenPage, Site
from tests.handlers.pages.steps import answered, answers, ask, show_probabilities

pytestmark = pytest.mark.asyncio(loop_scope="session")

SECONDS = 60


async def test_the_likeliest_alternatives_of_a_token(open_page: OpenPage, site: Site) -> None:
    site.say("Alpha beta gamma")
    async with open_page() as page:
        await show_probabilities(page)
        await ask(page, "Say.")
        token = answers(page).locator(".token").nth(1)
        await expect(token).to_have_class("token known doubt-1")  # exp(-0.25) is 0.779
        await token.hover()
        details = page.locator("#token-details")
        await expect(details).to_be_visible()
        rows = await details.locator("tr").all_inner_texts()
        assert [row.split("\t")[0] for row in rows[:2]] == ["␣beta", "␣gamma"]
        assert [row.split("\t")[1].strip() for row in rows[:2]] == ["77.9 %", "28.7 %"]
        assert len(rows) == 5
        await expect(details.locator("tr.taken")).to_have_count(1)
        await page.locator("#text").hover()
        await expect(details).to_be_hidden()


async def test_arrow_keys_go_from_token_to_token(open_page: OpenPage, site: Site) -> None:
    site.say("Alpha beta gamma")
    async with open_page() as page:
        await show_probabilities(page)
        await show_probabilities(page)
        await ask(page, "Say.")
        tokens = answers(page).locator(".token")
        assert await answers(page).locator(".token[tabindex='0']").count() == 1  # one tab stop
        await tokens.first.focus()
        await page.keyboard.press("ArrowRight")
        await expect(tokens.nth(1)).to_be_focused()
        await expect(tokens.nth(1)).to_have_attribute("aria-describedby", "token-details")
        await expect(page.locator("#token-details tr.taken th")).to_have_text("␣beta")
        await page.keyboard.press("Escape")
        await expect(page.locator("#token-details")).to_be_hidden()
        await page.keyboard.press("End")
        await expect(tokens.nth(2)).to_be_focused()
        await page.keyboard.press("ArrowRight")
        await expect(tokens.nth(2)).to_be_focused()
        await page.keyboard.press("Home")
        await expect(tokens.first).to_be_focused()


async def test_probabilities_can_be_shown_and_hidden(open_page: OpenPage, site: Site) -> None:
    site.say("Alpha beta gamma")
    async with open_page() as page:
        await ask(page, "Say.")
        await expect(answers(page).locator(".token")).to_have_count(0)
        await show_probabilities(page)
        await expect(answers(page).locator(".token")).to_have_count(3)
        await page.get_by_label("Probabilities").uncheck()
        await expect(answers(page).locator(".token")).to_have_count(0)
        await expect(answers(page).locator(".said").last).to_have_text("Alpha beta gamma")
        await expect(answers(page).locator(".stats")).to_contain_text("3 tokens")


async def test_the_page_by_keyboard_alone(open_page: OpenPage, site: Site) -> None:
    script = site.say("One two three", hold=True)
    site.say("Again")
    async with open_page() as page:
        keyboard = page.keyboard
        await show_probabilities(page)
        await page.locator("#text").focus()
        await keyboard.type("First line")
        await keyboard.press("Shift+Enter")
        await keyboard.type("second line")
        await keyboard.press("Enter")
        await asyncio.wait_for(script.started.wait(), SECONDS)
        assert site.backend().history[-1].prompt == "user: First line\nsecond line\nassistant:"
        await expect(answers(page).locator(".token")).to_have_count(3)
        await keyboard.press("Escape")
        await asyncio.wait_for(script.closed.wait(), SECONDS)
        await expect(answers(page).locator(".stats")).to_contain_text("stopped")
        await expect(page.locator("#text")).to_be_focused()
        await keyboard.press("Shift+Tab")  # back through the answer's buttons
        await expect(answers(page).get_by_role("button", name="Copy")).to_be_focused()
        await keyboard.press("Shift+Tab")
        await keyboard.press("Enter")
        await expect(answers(page).locator(".said").last).to_have_text("Again")
        await expect(page.locator("#text")).to_be_focused()


async def test_panels_by_keyboard(open_page: OpenPage) -> None:
    async with open_page() as page:
        await page.locator("#parameters-tab").focus()
        await page.keyboard.press("ArrowRight")
        await expect(page.locator("#requests-tab")).to_be_focused()
        await expect(page.locator("#requests")).to_be_visible()
        await expect(page.locator("#parameters")).to_be_hidden()


async def test_the_first_stop_leads_to_the_message(open_page: OpenPage) -> None:
    async with open_page() as page:
        skip = page.get_by_role("link", name="Skip to the message")
        assert await skip.evaluate("skip => skip === document.querySelector('a, button, input, select, textarea')")
        await skip.focus()
        await page.keyboard.press("Enter")
        await page.keyboard.type("Hi")
        await page.keyboard.press("Enter")
        await answered(page)
