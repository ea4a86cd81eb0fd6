"""Pages of other web sites in a browser: those of admitted origins read streams, others read nothing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from playwright.async_api import Browser

from lmi_handlers.access.api_keys import ApiKeys
from lmi_handlers.access.cross_origin import CrossOrigin, Origin
from lmi_handlers.access.options import AccessOptions
from lmi_handlers.testing import running_server
from lmi_plugins.backends.scripted import Script
from tests.conftest import SCRIPTED, ModelDirectory

pytestmark = pytest.mark.asyncio(loop_scope="session")

SECONDS = 60
PAGE = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 8\r\nConnection: close\r\n\r\n<p>Hi</p"
# The script of a page, which reads a stream piece by piece as clients in JavaScript do.
READ = """async ([url, key]) => {
    const messages = [{role: 'user', content: 'Hi'}];
    const headers = {'Content-Type': 'application/json', Authorization: `Bearer ${key}`, 'X-Stainless-Lang': 'js'};
    try {
        const body = JSON.stringify({messages, stream: true, max_tokens: 4});
        const answer = await fetch(`${url}/v1/chat/completions`, {method: 'POST', headers, body});
        const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
        let text = '';
        for (let piece = await reader.read(); !piece.done; piece = await reader.read()) text += piece.value;
        return {status: answer.status, text, name: answer.headers.get('x-request-id')};
    } catch (error) {
        return {error: String(error)};
    }
}"""
MANAGE = """async (url) => {
    try {
        const answer = await fetch(`${url}/models/model/adapters`);
        return {status: answer.status};
    } catch (error) {
        return {error: String(error)};
    }
}"""


@asynccontextmanager
async def web_site() -> AsyncIterator[str]:
    """Yield the origin of another web site, which has one page."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(PAGE)
        await writer.drain()
        writer.close()

    site = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with site:
        yield f"http://127.0.0.1:{site.sockets[0].getsockname()[1]}"


async def run_script(browser: Browser, origin: str, script: str, argument: object) -> Any:
    """Return what a script finds that runs in the page of an origin."""
    context = await browser.new_context()
    page = await context.new_page()
    await page.goto(origin)
    async with asyncio.timeout(SECONDS):
        found = await page.evaluate(script, argument)
    await context.close()
    return found


async def test_pages_of_other_origins(browser: Browser, model_dir: ModelDirectory) -> None:
    directory = model_dir({"serving.properties": SCRIPTED})
    async with web_site() as admitted, web_site() as other:
        access = AccessOptions(
            api_keys=ApiKeys(["ann sk-ann"]), cross_origin=CrossOrigin([Origin.parse_pattern(admitted)])
        )
        async with running_server(directory, access=access) as server:
            url = server.server.url
            server.scripted.enqueue(Script("Hello"))
            answer = await run_script(browser, admitted, READ, [url, "sk-ann"])
            assert (answer["status"], answer["text"].endswith("data: [DONE]\n\n")) == (200, True)
            assert answer["name"]
            refused = await run_script(browser, admitted, READ, [url, "sk-other"])
            assert (refused["status"], "the one given is not known" in refused["text"]) == (401, True)
            assert "Failed to fetch" in (await run_script(browser, admitted, MANAGE, url))["error"]
            server.scripted.history.clear()
            for origin in (other, admitted.replace("127.0.0.1", "localhost")):
                assert "Failed to fetch" in (await run_script(browser, origin, READ, [url, "sk-ann"]))["error"]
            assert server.scripted.history == []
