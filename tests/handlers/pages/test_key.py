"""The pages in a browser, where the server asks for an API key."""

import pytest
from playwright.async_api import Browser, Page, expect

from lmi_handlers.access.api_keys import ApiKeys
from lmi_handlers.access.options import AccessOptions
from tests.conftest import SCRIPTED, RunningServer
from tests.handlers.pages.browser import watched_page
from tests.handlers.pages.steps import ask, choose_dialect, send_request
from tests.handlers.pages.test_requests import CHAT, check_snippets, run, snippets
from tests.module_server import module_server

pytestmark = pytest.mark.asyncio(loop_scope="session")

KEY = "sk-right-7c0f"
SAYS = "It is fine."


# A server whose clients need a key.
server = module_server(
    f"{SCRIPTED}option.scripted_text={SAYS}\n",
    loop_scope="session",
    access=AccessOptions(api_keys=ApiKeys([f"ann {KEY}"])),
)


async def give_key(page: Page) -> None:
    dialog = page.get_by_role("dialog", name="API key")
    await dialog.get_by_label("Key").fill(KEY)
    await dialog.get_by_role("button", name="Use this key").click()
    await expect(dialog).to_be_hidden()


async def test_the_page_asks_for_a_key_and_keeps_it(browser: Browser, server: RunningServer) -> None:
    async with watched_page(browser, server.server.url, expected=("401",), ready="dialog") as page:
        dialog = page.get_by_role("dialog", name="API key")
        await expect(dialog).to_contain_text("an API key is needed")
        await dialog.get_by_label("Key").fill("wrong")
        await page.keyboard.press("Enter")
        await expect(dialog).to_contain_text("the one given is not known")
        await give_key(page)
        assert await ask(page, "Hi") == SAYS
        await page.reload()
        await expect(page.locator("#model")).to_have_value("model")
        assert await ask(page, "Hi") == SAYS
        assert await page.evaluate("localStorage.length") == 0


async def test_requests_in_every_dialect_show_the_key(browser: Browser, server: RunningServer) -> None:
    async with watched_page(browser, server.server.url, expected=("401",), ready="dialog") as page:
        await give_key(page)
        await ask(page, "Hi")
        for dialect in CHAT:
            await choose_dialect(page, dialect)
            await send_request(page)
            assert await page.locator("#requests .text").inner_text() == SAYS, dialect


async def test_snippets_take_the_key_from_the_environment(browser: Browser, server: RunningServer) -> None:
    async with watched_page(browser, server.server.url, expected=("401",), ready="dialog") as page:
        await give_key(page)
        await ask(page, "Hi")
        programs, commands = await snippets(page)
        await expect(page.locator("#requests")).to_contain_text("environment variable LMI_API_KEY")
        assert KEY not in await page.content()
    for text in (*programs.values(), *commands.values()):
        assert "LMI_API_KEY" in text
        assert KEY not in text
    await check_snippets(programs, commands, SAYS, LMI_API_KEY=KEY)
    refused = await run(["bash", "-c", commands["openai"].replace("curl ", "curl -sS ", 1)], LMI_API_KEY="other")
    assert "the one given is not known" in refused


async def test_snippets_of_the_api_take_the_key_from_the_environment(browser: Browser, server: RunningServer) -> None:
    async with watched_page(browser, server.server.url, path="/docs", expected=("401",), ready="dialog") as page:
        await give_key(page)
        curl, python = await page.locator("#curl").inner_text(), await page.locator("#python").inner_text()
        assert KEY not in await page.content()
    await check_snippets({"openai": python}, {"openai": curl}, SAYS, LMI_API_KEY=KEY)
