"""Whether everyone can use the page: axe-core's rules in both themes, on a phone too, and the choice of the theme."""

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Page, expect

from tests.handlers.pages.conftest import OpenPage, Site
from tests.handlers.pages.steps import answers, ask, show_probabilities

pytestmark = pytest.mark.asyncio(loop_scope="session")

MARKDOWN = """\
# Title

Text with [a link](https://example.com) and `code`.

```python
@cached
def add(one: int) -> str:  # adds
    return f"{one + 1}" or None
```

| Name | Size |
|---|--:|
| one | 1 |
"""
PHONE = {"width": 390, "height": 800}
GROUND = "getComputedStyle(document.body).backgroundColor"


async def violations(page: Page) -> list[str]:
    """Return what axe-core finds wrong, and where."""
    found = (await Axe().run(page)).response["violations"]
    return [f"{rule['id']}: {node['html']}" for rule in found for node in rule["nodes"]]


@pytest.mark.parametrize("colours", ["light", "dark"])
async def test_axe_finds_nothing(open_page: OpenPage, site: Site, colours: str) -> None:
    site.say(MARKDOWN)
    site.say('<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>')
    async with open_page(color_scheme=colours) as page:
        assert await violations(page) == []
        await ask(page, "Show all.")
        assert await violations(page) == []
        await page.locator("#parameters-tab").click()
        await page.locator("#tool-details summary").click()
        await page.get_by_role("button", name="Insert example").click()
        await ask(page, "Weather?")
        await show_probabilities(page)
        await expect(page.locator(".legend li")).to_have_count(4)
        assert await violations(page) == []
        await page.get_by_role("button", name="New chat").click()
        await ask(page, "Hi")
        await answers(page).locator(".token").first.focus()
        await page.locator("#requests-tab").click()
        await page.get_by_role("button", name="Send request").click()
        await expect(page.locator("#requests .text")).to_be_visible()
        await page.locator(".turn.user").get_by_role("button", name="Edit").click()
        assert await violations(page) == []


@pytest.mark.parametrize("colours", ["light", "dark"])
async def test_axe_finds_nothing_on_a_phone(open_page: OpenPage, colours: str) -> None:
    async with open_page(color_scheme=colours, viewport=PHONE) as page:
        await ask(page, "Hi")
        assert await violations(page) == []
        assert await page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
        await page.get_by_role("button", name="Menu").click()
        await expect(page.get_by_role("button", name="Close")).to_be_focused()
        assert await violations(page) == []
        await page.keyboard.press("Escape")
        await expect(page.locator("#panel")).to_be_hidden()
        await expect(page.get_by_role("button", name="Menu")).to_be_focused()


async def test_buttons_stay_together_on_a_phone(open_page: OpenPage) -> None:
    async with open_page(viewport=PHONE) as page:
        await page.get_by_label("Text", exact=True).check()
        await ask(page, "Once")
        boxes = [await each.bounding_box() for each in await answers(page).locator(".row button").all()]
        assert len(boxes) == 3
        assert len({box["y"] for box in boxes if box}) == 1


async def test_axe_would_find_something(open_page: OpenPage) -> None:
    async with open_page() as page:
        await page.locator("main").evaluate("main => main.append(document.createElement('input'))")
        assert [found.partition(":")[0] for found in await violations(page)] == ["label"]


async def test_the_theme_is_kept(open_page: OpenPage) -> None:
    async with open_page(color_scheme="light") as page:
        light = await page.evaluate(GROUND)
        await page.emulate_media(color_scheme="dark")
        dark = await page.evaluate(GROUND)
        assert light != dark
        theme = page.locator("#theme")
        await expect(theme).to_have_attribute("aria-label", "Theme: system. Change to light")
        await theme.click()
        assert await page.evaluate(GROUND) == light
        await page.reload()
        await expect(theme).to_have_attribute("aria-label", "Theme: light. Change to dark")
        assert await page.evaluate(GROUND) == light
        await theme.click()
        await page.emulate_media(color_scheme="light")
        assert await page.evaluate(GROUND) == dark


async def test_nothing_moves_where_that_is_asked_for(open_page: OpenPage, site: Site) -> None:
    script = site.say("One", hold=True)
    async with open_page(reduced_motion="reduce") as page:
        await page.locator("#text").fill("Hi")
        await page.locator("#text").press("Enter")
        await script.started.wait()
        waiting = page.locator(".waiting")
        assert await waiting.evaluate("each => getComputedStyle(each, '::after').animationName") == "none"
        await page.keyboard.press("Escape")
        await expect(waiting).to_have_count(0)
