"""Write the picture of the README, of `lmi demo` and its page as they are: `python -m tools.picture`."""

import asyncio
import base64
import html
import sys
from pathlib import Path

from playwright.async_api import Browser, Page

from tests.handlers.pages.browser import chromium
from tests.handlers.pages.steps import ask

PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "demo.png"
LMI = Path(sys.executable).with_name("lmi")
END = b"ends the demo."
QUESTIONS = ("What is Deep Learning?", "What is the capital of Iceland?")
PORT = "8080"
FRAME = """
<body style="margin: 0; padding: 24px; width: 912px; background: #dfe3ea; font: 15px/1.55 monospace">
<div style="background: #16181d; color: #e6e6e6; border-radius: 10px; padding: 18px 24px; white-space: pre-wrap"
>{text}</div>
<img style="width: 100%; border-radius: 10px; margin-top: 24px; display: block" src="data:image/png;base64,{page}">
"""


async def main() -> None:
    """Ask the demo in the terminal and on its page, and save both in one picture."""
    command = (LMI, "demo", "--no-open", "--port", PORT)
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        printed = (await process.stdout.readuntil(END)).decode()
        async with chromium() as browser:
            page = await browser.new_page(viewport={"width": 1000, "height": 620})
            await _talk(page, printed.split()[1])
            PICTURE.write_bytes(await _frame(browser, f"$ lmi demo\n{printed}", await page.screenshot()))
    finally:
        process.terminate()
        await process.wait()


async def _talk(page: Page, url: str) -> None:
    await page.goto(url)
    for question in QUESTIONS:
        await ask(page, question)


async def _frame(browser: Browser, text: str, screenshot: bytes) -> bytes:
    frame = await browser.new_page(viewport={"width": 960, "height": 10})
    await frame.set_content(FRAME.format(text=html.escape(text), page=base64.b64encode(screenshot).decode()))
    return await frame.screenshot(full_page=True)


if __name__ == "__main__":
    asyncio.run(main())
