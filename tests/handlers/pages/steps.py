"""What people do on the chat page."""

from playwright.async_api import Locator, Page, expect


async def say(page: Page, text: str) -> None:
    """Write a message and send it."""
    await page.locator("#text").fill(text)
    await page.locator("#text").press("Enter")


async def ask(page: Page, text: str) -> str:
    """Send a message, wait for the end of its answer, and return the answer."""
    before = await answers(page).count()
    await say(page, text)
    await expect(answers(page)).to_have_count(before + 1)
    return await answered(page)


async def answered(page: Page) -> str:
    """Wait for the end of the last answer, and return it."""
    last = answers(page).last
    await expect(last.locator(".stats")).to_be_visible()
    return await last.locator(".said").last.inner_text()


def answers(page: Page) -> Locator:
    return page.locator(".turn.assistant")


async def show_probabilities(page: Page) -> None:
    """Show answers as tokens with their probabilities, in place of Markdown."""
    await page.locator("#probabilities").check()


async def set_parameter(page: Page, name: str, value: str) -> None:
    await page.locator("#parameters-tab").click()
    await page.locator(f"#p-{name}").fill(value)


async def choose_dialect(page: Page, name: str) -> None:
    await page.locator("#requests-tab").click()
    await page.locator("#dialect").select_option(name)
    await written(page)


async def written(page: Page) -> None:
    """Wait until the request that is shown is the newest."""
    await expect(page.locator("#requests .code").first).to_have_attribute("aria-busy", "false")


async def send_request(page: Page, told: str = "Status 200") -> None:
    """Send the request that is shown, and wait for the end of its answer."""
    facts = page.locator(".answer-facts")
    await page.locator("#requests").get_by_role("button", name="Send request").click()
    await expect(facts).to_contain_text(told)
