"""The same request in every dialect: what is shown works, and asks the model for exactly what the chat asks for."""

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from playwright.async_api import FilePayload, Page, expect

from lmi_core.generation.request import ValidRequest
from tests.handlers.pages.conftest import PNG, OpenPage, Site
from tests.handlers.pages.steps import ask, choose_dialect, send_request, set_parameter, written

pytestmark = pytest.mark.asyncio(loop_scope="session")

CHAT = ["openai", "responses", "anthropic", "ollama", "lmi", "sagemaker", "tgi", "triton", "happy_vllm"]
TEXT = ["completions", "ollama-generate", "lmi", "sagemaker", "tgi", "triton", "happy_vllm"]
PARAMETERS = {
    "temperature": "0.5",
    "max_tokens": "4",
    "top_p": "0.9",
    "top_k": "5",
    "presence_penalty": "0.25",
    "frequency_penalty": "0.5",
    "seed": "7",
    "stop": "field",
}
# What concerns the form of the answer, or the name of the request, and not what is generated.
OF_THE_ANSWER = {"details", "logprobs", "top_n_tokens", "return_full_text"}
# Runs each program by itself, with one process for all, and prints what each prints.
RUN_PROGRAMS = """\
import contextlib, io, json, sys
printed = {}
for name, program in json.load(sys.stdin).items():
    with contextlib.redirect_stdout(io.StringIO()) as output:
        exec(compile(program, name, "exec"), {})
    printed[name] = output.getvalue()
print(json.dumps(printed))
"""


def generated(request: ValidRequest) -> tuple[list[int], dict[str, Any]]:
    """Return what the model generates from: the prompt's tokens, and the parameters that have an effect."""
    parameters = request.parameters
    effective = {name: value for name, value in parameters.model_dump().items() if name not in OF_THE_ANSWER}
    if not effective["do_sample"] or effective["temperature"] == 0:  # greedy decoding
        effective |= dict.fromkeys(("do_sample", "temperature", "top_p", "top_k", "seed"))
    if effective["top_k"] == -1:
        effective["top_k"] = 0  # both mean all tokens
    return request.prompt_ids, effective


async def show_request(page: Page, form: str) -> str:
    """Return the request as the page shows it in the form: curl, Python or JSON."""
    await page.locator("#form").select_option(form)
    await written(page)
    return str(await page.locator("#requests pre").first.text_content())


async def send(page: Page, site: Site, dialect: str, model: str) -> tuple[str, ValidRequest]:
    """Send the request in this dialect, and return the text of its answer and what the model got."""
    await choose_dialect(page, dialect)
    count = len(site.backend(model).history)
    await send_request(page)
    text = await page.locator("#requests .text").inner_text()
    assert len(site.backend(model).history) == count + 1
    return text, site.backend(model).history[-1]


@pytest.mark.parametrize("parameters", [PARAMETERS, {}], ids=["all", "none"])
async def test_chats_in_every_dialect(open_page: OpenPage, site: Site, parameters: dict[str, str]) -> None:
    async with open_page() as page:
        await page.locator("#parameters-tab").click()
        await page.locator("#system").fill("Be kind.")
        await ask(page, "Hi")
        for name, value in (parameters or {"temperature": "0"}).items():
            await set_parameter(page, name, value)
        said = await ask(page, 'How are you? It\'s "fine".')
        expected = generated(site.backend().history[-1])
        for dialect in CHAT:
            text, request = await send(page, site, dialect, "talker")
            assert (text, generated(request)) == (said, expected), dialect


@pytest.mark.parametrize("parameters", [PARAMETERS, {}], ids=["all", "none"])
async def test_texts_in_every_dialect(open_page: OpenPage, site: Site, parameters: dict[str, str]) -> None:
    async with open_page(model="plain") as page:
        for name, value in parameters.items():
            await set_parameter(page, name, value)
        said = await ask(page, "Once upon")
        expected = generated(site.backend("plain").history[-1])
        for dialect in TEXT:
            text, request = await send(page, site, dialect, "plain")
            assert (text, generated(request)) == (said.strip(), expected), dialect


async def test_tools_and_results_in_every_dialect(open_page: OpenPage, site: Site) -> None:
    site.say('<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>')
    async with open_page() as page:
        await page.locator("#parameters-tab").click()
        await page.get_by_text("Tools", exact=True).click()
        await page.get_by_role("button", name="Insert example").click()
        await ask(page, "Weather?")
        await page.get_by_label("Result of get_weather").fill("23 degrees")
        await page.get_by_role("button", name="Send the result").click()
        await expect(page.locator(".stats")).to_have_count(2)
        expected = site.backend().history[-1].prompt
        for dialect in CHAT:
            _, request = await send(page, site, dialect, "talker")
            assert request.prompt == expected, dialect


async def test_adapters_in_every_dialect(open_page: OpenPage, site: Site) -> None:
    async with open_page() as page:
        await page.locator("#adapter").select_option("french")
        await ask(page, "Hi")
        for dialect in CHAT:
            await choose_dialect(page, dialect)
            await send_request(page)
            await expect(page.locator("#requests .raw")).to_contain_text("french")


async def snippets(page: Page) -> tuple[dict[str, str], dict[str, str]]:
    """Return the programs in Python, and the commands of curl, by dialect."""
    programs, commands = {}, {}
    for dialect in CHAT:
        await choose_dialect(page, dialect)
        programs[dialect] = await show_request(page, "Python")
        commands[dialect] = await show_request(page, "curl")
    await page.get_by_label("Stream").check()
    for dialect in ("openai", "responses", "anthropic", "ollama"):
        await choose_dialect(page, dialect)
        programs[f"{dialect} stream"] = await show_request(page, "Python")
    return programs, commands


async def check_snippets(programs: dict[str, str], commands: dict[str, str], said: str, **variables: str) -> None:
    """Check that all of them print the answer, run with these environment variables."""
    command = [sys.executable, "-W", "ignore", "-c", RUN_PROGRAMS]
    printed = json.loads(await run(command, json.dumps(programs), **variables))
    assert {name: text.strip() for name, text in printed.items()} == dict.fromkeys(programs, said)
    for dialect, command_line in commands.items():
        quiet = command_line.replace("curl ", "curl -sS ", 1)
        assert said in await run(["bash", "-c", quiet], **variables), dialect


async def test_programs_print_the_answer(open_page: OpenPage, site: Site) -> None:
    async with open_page() as page:
        for name in PARAMETERS.keys() - {"max_tokens", "stop"}:
            await set_parameter(page, name, PARAMETERS[name])
        said = await ask(page, "It's \"fine\" \\ isn't it?")
        expected = site.backend().history[-1].prompt
        programs, commands = await snippets(page)
    count = len(site.backend().history)
    await check_snippets(programs, commands, said)
    asked = site.backend().history[count:]
    assert [request.prompt for request in asked] == [expected] * (len(programs) + len(commands))


async def run(command: Sequence[str], given: str = "", **variables: str) -> str:
    """Return what a command prints, run with these environment variables added and no proxy."""
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")} | variables
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment)
    output, errors = await process.communicate(given.encode())
    assert process.returncode == 0, errors.decode()
    return output.decode()


async def test_streams_are_shown_as_they_come(open_page: OpenPage, site: Site) -> None:
    async with open_page() as page:
        await ask(page, "Hi")
        await page.locator("#requests-tab").click()
        await page.get_by_label("Stream").check()
        for dialect, part in {"openai": "data: [DONE]", "tgi": "data:", "anthropic": "event: message_stop"}.items():
            await choose_dialect(page, dialect)
            await send_request(page)
            await expect(page.locator("#requests .raw")).to_contain_text(part)
        await page.locator("#dialect").select_option("sagemaker")
        await expect(page.get_by_label("Stream")).to_be_disabled()


async def test_images_in_the_dialects_that_take_them(open_page: OpenPage, site: Site) -> None:
    async with open_page(model="seeing") as page:
        await page.locator("#images").set_input_files(FilePayload(name="a.png", mimeType="image/png", buffer=PNG))
        await ask(page, "What is it?")
        for dialect in ("openai", "responses", "anthropic", "ollama", "lmi", "sagemaker"):
            _, request = await send(page, site, dialect, "seeing")
            assert request.image_prompt is not None, dialect
            assert request.image_prompt.content == [PNG], dialect
        await choose_dialect(page, "tgi")
        await expect(page.locator("#requests")).to_contain_text("This dialect accepts only text")
        await expect(page.get_by_role("button", name="Send request")).to_be_disabled()


async def test_copy(open_page: OpenPage, site: Site) -> None:
    async with open_page(permissions=["clipboard-read", "clipboard-write"]) as page:
        await ask(page, "Hi")
        await page.locator("#requests-tab").click()
        code = await show_request(page, "Python")
        await page.locator("#requests").get_by_role("button", name="Copy").click()
        await expect(page.locator("#announcements")).to_have_text("Copied")
        assert await page.evaluate("navigator.clipboard.readText()") == code


async def test_an_error_of_a_dialect(open_page: OpenPage, site: Site) -> None:
    async with open_page(expected=("422",)) as page:
        await ask(page, "Hi")
        await set_parameter(page, "max_tokens", "2048000")
        await choose_dialect(page, "tgi")
        await page.get_by_role("button", name="Send request").click()
        await expect(page.locator("#requests").get_by_role("alert")).to_contain_text("max_new_tokens")
