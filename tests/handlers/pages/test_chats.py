"""The chats of a browser tab: kept over a reload, chosen from a list, and deleted."""

import asyncio

import pytest
from playwright.async_api import expect

from tests.handlers.pages.conftest import OpenPage, Site
from tests.handlers.pages.steps import answers, ask, say, set_parameter, show_probabilities
from tests.handlers.pages.test_accessibility import PHONE, violations

pytestmark = pytest.mark.asyncio(loop_scope="session")

SECONDS = 60
AS_MARKDOWN = """\
## You

First question

## thinker

Good **day**

## You

And now?

## thinker

Fine
"""


async def test_chats_are_kept_chosen_and_deleted(open_page: OpenPage, site: Site) -> None:
    site.say("<think> Hm .</think> Good **day**", "thinker")
    site.say("**Fine**")
    async with open_page(model="thinker") as page:
        await page.locator("#parameters-tab").click()
        await page.locator("#system").fill("Be kind.")
        await ask(page, "First question")
        statistics = await answers(page).locator(".stats").inner_text()
        await page.keyboard.press("Control+Shift+O")
        await page.locator("#model").select_option("talker")
        await ask(page, "Second question")
        await page.reload()
        await expect(answers(page).locator("strong")).to_have_text("Fine")
        await expect(page.locator("#model")).to_have_value("talker")
        chats = page.locator(".chats li")
        await expect(chats.locator("button:first-child")).to_have_text(["Second question", "First question"])
        assert await violations(page) == []
        await page.get_by_role("button", name="First question", exact=True).click()
        await expect(answers(page).locator("strong")).to_have_text("day")
        await expect(answers(page).locator(".stats")).to_have_text(statistics)
        await expect(page.locator("#model")).to_have_value("thinker")
        site.say("Fine", "thinker")
        await ask(page, "And now?")
        prompt = site.backend("thinker").history[-1].prompt
        assert prompt.startswith("system: Be kind.\nuser: First question\nassistant: Good **day**\nuser: And now?\n")
        async with page.expect_download() as download:
            await page.get_by_role("button", name="Download First question").click()
        file = await download.value
        assert file.suggested_filename == "First question.md"
        assert (await file.path()).read_text() == AS_MARKDOWN
        await page.get_by_role("button", name="Delete First question").click()
        await expect(page.locator(".welcome")).to_be_visible()
        await expect(page.get_by_role("button", name="Second question", exact=True)).to_be_focused()
        await page.get_by_role("button", name="Undo").click()
        await expect(page.get_by_role("button", name="First question", exact=True)).to_be_focused()
        await expect(chats.locator("button:first-child")).to_have_text(["Second question", "First question"])
        await page.get_by_role("button", name="Delete First question").click()
        await page.get_by_role("button", name="Delete Second question").click()
        await page.reload()
        await expect(page.get_by_text("No chats yet.")).to_be_visible()
        await expect(page.locator(".turn")).to_have_count(0)


async def test_a_reload_keeps_what_came_of_an_answer(open_page: OpenPage, site: Site) -> None:
    script = site.say("One two", hold=True)
    async with open_page(viewport=PHONE) as page:
        await say(page, "Count.")
        await asyncio.wait_for(script.started.wait(), SECONDS)
        await expect(answers(page).locator(".said").last).to_have_text("One two")
        await page.reload()
        await expect(answers(page).locator(".said").last).to_have_text("One two")
        await expect(answers(page).locator(".stats")).to_contain_text("stopped")


async def test_a_reload_keeps_what_is_filled_in(open_page: OpenPage, site: Site) -> None:
    async with open_page(model="seeing") as page:
        await set_parameter(page, "temperature", "3")
        await set_parameter(page, "stop", "really\nfield")
        await page.locator("#system").fill("Be kind.")
        await page.get_by_label("Text", exact=True).check()
        await page.locator("#text").fill("Half a\nmessage")
        await page.reload()
        await expect(page.locator("#text")).to_have_value("Half a\nmessage")
        await expect(page.locator("#model")).to_have_value("seeing")
        await expect(page.get_by_label("Text", exact=True)).to_be_checked()
        await expect(page.locator("#p-temperature-wrong")).to_have_text("Temperature must be from 0 to 2")
        await page.locator("#parameters-tab").click()
        await page.locator("#p-temperature").fill("0.5")
        await page.get_by_label("Chat", exact=True).check()
        await ask(page, "Hi")
        request = site.backend("seeing").history[-1]
        assert request.prompt.startswith("system: Be kind.\n")
        assert request.parameters.temperature == 0.5
        assert request.parameters.stop_sequences == ["really", "field"]


async def test_new_chats_have_no_system_prompt(open_page: OpenPage) -> None:
    async with open_page() as page:
        await page.locator("#parameters-tab").click()
        system = page.locator("#system")
        await system.fill("Be kind.")
        await page.get_by_role("button", name="New chat").click()
        await expect(system).to_have_value("Be kind.")  # it belongs to no chat yet
        await ask(page, "Hi")
        await page.get_by_role("button", name="New chat").click()
        await expect(system).to_have_value("")
        await page.locator("#chats-tab").click()
        await page.get_by_role("button", name="Hi", exact=True).click()
        await expect(system).to_have_value("Be kind.")
        await page.get_by_role("button", name="Delete Hi").click()
        await expect(system).to_have_value("")


async def test_probabilities_are_lost_by_a_reload(open_page: OpenPage) -> None:
    async with open_page() as page:
        await show_probabilities(page)
        await ask(page, "Hi")
        note = page.get_by_text("A reload keeps the text of answers, not their probabilities.")
        await expect(note).to_be_hidden()
        await page.reload()
        await show_probabilities(page)
        await expect(note).to_be_visible()
        await page.get_by_role("button", name="New chat").click()
        await expect(note).to_be_hidden()


async def test_a_chat_that_is_chosen_on_a_phone_is_not_covered(open_page: OpenPage) -> None:
    async with open_page(viewport=PHONE) as page:
        await ask(page, "Hi")
        await page.get_by_role("button", name="New chat").click()
        await page.get_by_role("button", name="Menu").click()
        await page.get_by_role("button", name="Hi", exact=True).click()
        await expect(page.locator("#panel")).to_be_hidden()
        await expect(page.locator(".turn.user .said")).to_have_text("Hi")
        await expect(page.get_by_role("button", name="Menu")).to_be_focused()


# Leaves the browser room for a chat of 150,000 characters, but not for two.
FILL = """() => {
    let size = 0;
    for (let more = 2 ** 23; more >= 2 ** 10; more /= 2) {
        try {
            sessionStorage.setItem("filler", "x".repeat(size + more));
            size += more;
        } catch {}
    }
    sessionStorage.setItem("filler", "x".repeat(size - 200_000));
}"""


async def test_the_oldest_chats_give_way_where_the_browser_has_no_room(open_page: OpenPage, site: Site) -> None:
    async with open_page() as page:
        await page.evaluate(FILL)
        for name in ("First", "Second"):
            await page.get_by_role("button", name="New chat").click()
            await page.locator("#text").fill(name + " x" * 75_000)
            await page.route("**/v1/chat/completions", lambda route: route.fulfill(status=200, body="Done"))
            await page.locator("#text").press("Enter")
            await expect(answers(page).locator(".stats")).to_be_visible()
        await page.reload()
        titles = await page.locator(".chats button:first-child").all_inner_texts()
        assert [title.split()[0] for title in titles] == ["Second"]
