"""One browser, and one server with models of several kinds, for all tests of the pages."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, cast

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page

from lmi_handlers.testing import running_server
from lmi_plugins.backends.scripted import Script, ScriptedBackend
from tests.conftest import SCRIPTED, RunningServer
from tests.handlers.chat.test_images import SeeingPlugin
from tests.handlers.pages.browser import chromium, watched_page

OpenPage = Callable[..., AbstractAsyncContextManager[Page]]

HOSTILE = "<img/src=x/onerror=alert(1)>"  # a model's name
BY_FRENCH = """\
from djl_python.output_formatter import output_formatter

@output_formatter
def f(response_data: dict) -> dict:
    return {"by": "french"}
"""
HANDLE = "def handle(inputs):\n    return None\n"
SEEING = "option.rolling_batch=seeing\noption.max_images=2\n"
# A picture of one point.
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c63e8e8e800000304018110e0f5"
    "f70000000049454e44ae426082"
)
MODELS: Mapping[str, Mapping[str, str]] = {
    "talker": {
        "serving.properties": f"{SCRIPTED}option.tool_call_parser=hermes\n",
        "adapters/french/model.py": BY_FRENCH,
    },
    "plain": {"serving.properties": SCRIPTED},  # without a chat template, see `site`
    "thinker": {"serving.properties": f"{SCRIPTED}option.enable_reasoning=True\noption.reasoning_parser=qwen3\n"},
    "seeing": {"serving.properties": SEEING},
    "vectors": {"serving.properties": f"{SCRIPTED}option.task=text-embedding\n"},
    "hostile": {"serving.properties": f"{SCRIPTED}option.served_model_name={HOSTILE}\n"},
}


class Site:
    """The server of the tests, and the scripts of its models."""

    def __init__(self, running: RunningServer) -> None:
        self.running = running
        self.url = running.server.url

    def backend(self, model: str = "talker") -> ScriptedBackend:
        return cast(ScriptedBackend, self.running.dispatcher.models[model].backend)

    def say(self, text: str, model: str = "talker", **script: Any) -> Script:
        """Set the answer to the model's next request."""
        said = Script(text, **script)
        self.backend(model).enqueue(said)
        return said


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as started:
        yield started


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    store = tmp_path_factory.mktemp("models")
    for model, files in MODELS.items():
        for name, text in files.items():
            (store / model / name).parent.mkdir(parents=True, exist_ok=True)
            (store / model / name).write_text(text, encoding="utf-8")
    async with running_server(store, [SeeingPlugin()]) as running:
        found = Site(running)
        found.backend("plain").tokenizer.template = None
        yield found


@pytest.fixture
def open_page(browser: Browser, site: Site) -> OpenPage:
    """Open the chat page: `async with open_page(model="talker") as page`."""
    return partial(chat_page, browser, site.url)


@asynccontextmanager
async def chat_page(browser: Browser, url: str, model: str = "talker", **options: Any) -> AsyncIterator[Page]:
    async with watched_page(browser, url, **options) as page:
        await page.locator("#model").select_option(model)
        yield page
