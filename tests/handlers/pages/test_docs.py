"""The API page, which starts with commands to copy and paste, and lists every route with its types."""

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from playwright.async_api import Browser, Page, expect

from tests.handlers.pages.browser import Watched
from tests.handlers.pages.conftest import HOSTILE, Site
from tests.handlers.pages.test_accessibility import PHONE, violations

pytestmark = pytest.mark.asyncio(loop_scope="session")


@asynccontextmanager
async def docs_page(browser: Browser, site: Site, **options: Any) -> AsyncIterator[Page]:
    """Open the page, and fail where the browser complained."""
    context = await browser.new_context(**options)
    watched = Watched(context, site.url, ())
    page = await context.new_page()
    await page.goto(f"{site.url}/docs")
    await expect(page.locator("#routes details").first).to_be_visible()
    yield page
    await context.close()
    assert watched.complaints == []


async def output_of(*command: str) -> str:
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    printed, _ = await process.communicate()
    assert process.returncode == 0
    return printed.decode()


async def test_snippets_work_as_they_are(browser: Browser, site: Site) -> None:
    async with docs_page(browser, site) as page:
        curl, python = await page.locator("#curl").inner_text(), await page.locator("#python").inner_text()
    assert HOSTILE in curl  # the first model, by its first name
    site.say("By curl.", "hostile")
    answered = json.loads(await output_of("bash", "-c", curl))
    assert answered["choices"][0]["message"]["content"] == "By curl.", (curl, answered)
    site.say("By Python.", "hostile")
    assert await output_of(sys.executable, "-c", python) == "By Python.\n"


async def test_models_are_told_with_what_they_can_do(browser: Browser, site: Site) -> None:
    async with docs_page(browser, site) as page:
        told = await page.locator("#models li").all_inner_texts()
    assert any(each.startswith("talker: chats, up to") for each in told)
    assert "french: adapter of talker" in [each.partition(",")[0] for each in told]
    assert any(each.startswith("plain: text completions") for each in told)


async def test_every_route_has_its_fields_answers_and_a_form(browser: Browser, site: Site) -> None:
    document = (await site.running.get("/openapi.json")).json()
    async with docs_page(browser, site) as page:
        routes = page.locator("#routes details")
        await expect(routes).to_have_count(sum(len(methods) for methods in document["paths"].values()))
        route = routes.filter(has_text=re.compile(r"POST /v1/chat/completions(?!/)"))
        await route.locator("summary").click()
        await expect(route.get_by_role("cell", name="messages", exact=True)).to_be_visible()
        await expect(route.get_by_role("cell", name="ChatCompletion").first).to_be_visible()
        await expect(route.get_by_role("cell", name="OpenAiError").first).to_be_visible()
        body = {"model": "talker", "messages": [{"role": "user", "content": "Hi"}]}
        site.say("Tried.", "talker")
        await route.get_by_label("Body").fill(json.dumps(body))
        await route.get_by_role("button", name="Send").click()
        await expect(route.get_by_label("Answer")).to_contain_text("Tried.")


@pytest.mark.parametrize("colours", ["light", "dark"])
async def test_axe_finds_nothing(browser: Browser, site: Site, colours: str) -> None:
    async with docs_page(browser, site, color_scheme=colours, viewport=PHONE) as page:
        await page.locator("#routes details").filter(has_text="POST /invocations").locator("summary").click()
        assert await violations(page) == []
        assert await page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
