"""What the chat page offers for models of other kinds: plain texts, tools and images."""

from base64 import b64encode
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from lmi_handlers.testing import running_server
from tests.handlers.pages.browser import watched_page
from tests.handlers.pages.conftest import PNG, OpenPage, Site
from tests.handlers.pages.steps import answered, answers, ask, choose_dialect, send_request, show_probabilities

pytestmark = pytest.mark.asyncio(loop_scope="session")

CALL = '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>'
SHOUT = """\
from djl_python import Output

def handle(inputs):
    if inputs.is_empty():
        return None
    return Output().add_as_json({"generated_text": inputs.get_as_json()["inputs"].upper()})
"""


async def test_texts_are_continued_where_there_is_no_chat_template(open_page: OpenPage, site: Site) -> None:
    site.say(" upon a time", "plain")
    async with open_page(model="plain") as page:
        await expect(page.get_by_label("Chat", exact=True)).to_be_disabled()
        await expect(page.get_by_label("Text", exact=True)).to_be_checked()
        await page.locator("#parameters-tab").click()
        await expect(page.locator("#system")).to_be_hidden()
        await show_probabilities(page)
        assert await ask(page, "Once") == " upon a time"
        assert site.backend("plain").history[-1].prompt == "Once"
        await expect(answers(page).locator(".token")).to_have_text([" upon", " a", " time"])
        await page.get_by_role("button", name="Continue from here").click()
        await expect(page.locator("#text")).to_have_value("Once upon a time")


async def test_a_model_with_a_chat_template_continues_texts_too(open_page: OpenPage, site: Site) -> None:
    async with open_page() as page:
        await page.get_by_label("Text", exact=True).check()
        await ask(page, "Once")
        assert site.backend().history[-1].prompt == "Once"


async def test_a_new_text_leaves_the_last_one_among_the_chats(open_page: OpenPage, site: Site) -> None:
    site.say(" of arms", "plain")
    site.say(" or less", "plain")
    async with open_page(model="plain") as page:
        await ask(page, "Sing.")
        await page.locator("#text").fill("More")
        await page.get_by_role("button", name="Continue", exact=True).click()
        await expect(page.locator(".turn.user .said")).to_have_text("More")
        assert await answered(page) == " or less"
        await expect(page.locator(".chats button:first-child")).to_have_text(["More", "Sing."])
        await page.get_by_role("button", name="Sing.", exact=True).click()
        await expect(page.locator(".turn.user .said")).to_have_text("Sing.")
        assert await answered(page) == " of arms"


async def test_tools(open_page: OpenPage, site: Site) -> None:
    site.say(CALL)
    site.say("Sunny")
    async with open_page() as page:
        await page.locator("#parameters-tab").click()
        await page.get_by_text("Tools", exact=True).click()
        await page.locator("#tools").fill("[{}]")
        await expect(page.locator("#tools-wrong")).to_have_text("Tool 1 has no function.name")
        await page.get_by_role("button", name="Insert example").click()
        await ask(page, "Weather?")
        await expect(answers(page).locator(".call h3")).to_have_text("Calls get_weather")
        await expect(answers(page).locator(".call pre")).to_contain_text('"city": "Paris"')
        await page.get_by_label("Result of get_weather").fill("23 degrees")
        await page.get_by_role("button", name="Send the result").click()
        await expect(answers(page)).to_have_count(2)
        assert await answered(page) == "Sunny"
        prompt = site.backend().history[-1].prompt
        assert prompt.startswith("tool: get_weather\nuser: Weather?\nassistant: ")
        assert prompt.endswith("\ntool: 23 degrees\nassistant:")


async def test_images(open_page: OpenPage, site: Site, tmp_path: Path) -> None:
    (tmp_path / "point.png").write_bytes(PNG)
    async with open_page(model="seeing") as page:
        await page.locator("#images").set_input_files([tmp_path / "point.png"] * 3)
        await expect(page.locator("#attached img")).to_have_count(2)  # as many as it takes
        await page.get_by_role("button", name="Remove point.png").first.click()
        await expect(page.locator("#attached img")).to_have_count(1)
        await ask(page, "What is it?")
        request = site.backend("seeing").history[-1]
        assert request.image_prompt is not None
        assert request.image_prompt.content == [PNG]
        await expect(page.locator(".turn.user img")).to_have_attribute("alt", "point.png")
        await expect(page.locator("#attached li")).to_have_count(0)
        await page.locator("#model").select_option("talker")
        await expect(page.locator("#attach")).to_be_hidden()


async def test_images_are_pasted(open_page: OpenPage, site: Site) -> None:
    async with open_page(model="seeing") as page:
        await page.locator("#text").evaluate(
            """(text, data) => {
                const transfer = new DataTransfer();
                const bytes = Uint8Array.from(atob(data), (each) => each.charCodeAt(0));
                transfer.items.add(new File([bytes], "", { type: "image/png" }));
                text.dispatchEvent(new ClipboardEvent("paste", { clipboardData: transfer, bubbles: true }));
            }""",
            b64encode(PNG).decode(),
        )
        await expect(page.locator("#attached img")).to_have_attribute("alt", "pasted image")
        await page.locator("#send").click()
        await answered(page)
        request = site.backend("seeing").history[-1]
        assert request.image_prompt is not None
        assert request.image_prompt.content == [PNG]


async def drop(page: Page, selector: str, *files: Path) -> None:
    """Drag files from another program onto an element, and drop them there."""
    box = await page.locator(selector).bounding_box()
    assert box is not None
    where = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}
    data = {"items": [], "files": [str(file) for file in files], "dragOperationsMask": 1}
    devtools = await page.context.new_cdp_session(page)
    for event in ("dragEnter", "dragOver", "drop"):
        await devtools.send("Input.dispatchDragEvent", {"type": event, **where, "data": data})


async def test_images_are_dropped(open_page: OpenPage, site: Site, tmp_path: Path) -> None:
    for name in ("one.png", "two.png", "three.png"):
        (tmp_path / name).write_bytes(PNG)
    async with open_page(model="seeing") as page:
        await drop(page, "#composer", tmp_path / "one.png")
        await expect(page.locator("#attached img")).to_have_attribute("alt", "one.png")
        await drop(page, "#transcript", tmp_path / "two.png", tmp_path / "three.png")  # anywhere on the page
        await expect(page.locator("#attached img")).to_have_count(2)
        await expect(page.locator("#attach-note")).to_have_text("This model accepts at most 2 images")
        await page.get_by_role("button", name="Remove two.png").click()
        await expect(page.locator("#attach-note")).to_have_text("")
        await ask(page, "What is it?")
        request = site.backend("seeing").history[-1]
        assert request.image_prompt is not None
        assert request.image_prompt.content == [PNG]
        await expect(page.locator(".turn.user img")).to_have_attribute("alt", "one.png")


async def test_texts_are_dropped(open_page: OpenPage, site: Site, tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("Note:\n````\ncode\n````\n")
    (tmp_path / "program.py").write_text("print('é')\n")
    written = "Read this\n\nnotes.md:\n`````\nNote:\n````\ncode\n````\n`````\n\nprogram.py:\n```\nprint('é')\n```\n"
    async with open_page(model="talker") as page:
        await page.locator("#text").fill("Read this")
        await drop(page, "#transcript", tmp_path / "notes.md", tmp_path / "program.py")
        await expect(page.locator("#text")).to_have_value(written)
        await page.locator("#send").click()
        await answered(page)
        assert "print('é')" in site.backend("talker").history[-1].prompt


async def test_what_cannot_be_sent_does_not_replace_the_page(open_page: OpenPage, tmp_path: Path) -> None:
    (tmp_path / "point.png").write_bytes(PNG)
    (tmp_path / "program").write_bytes(b"\x7fELF\0")
    async with open_page(model="seeing") as page:
        await page.locator("#text").fill("Kept")
        await drop(page, "#transcript", tmp_path / "program")
        await expect(page.locator("#attach-note")).to_have_text("program is not a text file of at most 1 MB")
        (tmp_path / "folder").mkdir()
        await drop(page, "#transcript", tmp_path / "folder")
        await expect(page.locator("#attach-note")).to_have_text("folder is not a text file of at most 1 MB")
        await page.locator("#model").select_option("talker")
        await drop(page, "#composer", tmp_path / "point.png")
        await expect(page.locator("#attach-note")).to_have_text("This model does not accept images")
        await expect(page.locator("#attach")).to_be_hidden()
        await expect(page.locator("#attached li")).to_have_count(0)
        await expect(page.locator("#text")).to_have_value("Kept")
        assert page.url.startswith("http:")


async def test_a_function_that_answers_by_itself(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "model.py").write_text(SHOUT)
    async with running_server(tmp_path / "own") as running, watched_page(browser, running.server.url) as page:
        await expect(page.locator(".welcome")).to_contain_text("The model's own function answers")
        await expect(page.locator("#send")).to_be_disabled()
        await page.locator("#text").fill("hello")
        await choose_dialect(page, "lmi")
        await send_request(page)
        await expect(page.locator("#requests .text")).to_have_text("HELLO")
