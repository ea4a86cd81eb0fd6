"""The console in a browser: what it shows while it goes on, what one can do there, and who may."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, Page, expect

from lmi_core.registry.registration import Registration
from lmi_core.serving.model import Model
from lmi_handlers.access.credentials import Secret
from lmi_handlers.access.options import AccessOptions, ListenAddress
from lmi_handlers.console import handler
from lmi_handlers.process.front import Front
from lmi_handlers.testing import running_server
from lmi_plugins.backends.scripted import Script, ScriptedBackend
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer
from tests.handlers.pages.browser import watched_page
from tests.handlers.pages.test_accessibility import PHONE, violations

pytestmark = pytest.mark.asyncio(loop_scope="session")

TOKEN = "token-of-operators"
STEADY = f"{SCRIPTED}option.scripted_delay=0.05\noption.scripted_text={'word ' * 400}\n"
HOSTILE = "<img src=x onerror=alert(1)>"

OpenConsole = Callable[..., AbstractAsyncContextManager[Page]]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningServer]:
    store = tmp_path_factory.mktemp("store")
    for name, files in {
        "steady": {"serving.properties": STEADY},
        "talker": {"serving.properties": f"{SCRIPTED}option.unheard_of=1\n", "adapters/french/model.py": ""},
    }.items():
        for path, text in files.items():
            (store / name / path).parent.mkdir(parents=True, exist_ok=True)
            (store / name / path).write_text(text)
    async with running_server(store) as running:
        yield running


@pytest.fixture
def open_console(browser: Browser, server: RunningServer) -> OpenConsole:
    return partial(watched_page, browser, server.server.url, path="/console", ready="#models tbody tr")


def row(page: Page, name: str) -> Locator:
    """Return the row of a model, by what its name begins with."""
    return page.locator("#models tbody tr").filter(has=page.locator(".title", has_text=name))


async def load(page: Page, directory: Path, **fields: str) -> None:
    """Fill in the form that loads a model, and send it."""
    await page.get_by_role("button", name="Load a model").click()
    form = page.get_by_role("dialog", name="Load a model")
    await form.get_by_label("Model", exact=True).fill(str(directory))
    for label, value in fields.items():
        await form.get_by_label(label, exact=True).fill(value)
    await form.get_by_role("button", name="Load").click()


async def confirm(page: Page, action: str) -> None:
    await page.get_by_role("dialog").get_by_role("button", name=action).click()


async def test_what_is_shown(open_console: OpenConsole) -> None:
    async with open_console() as page:
        await expect(row(page, "talker").locator(".badge").first).to_have_text("ready")
        await expect(row(page, "talker")).to_contain_text("french")
        await row(page, "talker").get_by_text("1 warning").click()
        await expect(row(page, "talker")).to_contain_text("unheard_of")
        figures = page.locator("#figures")
        await expect(figures).to_contain_text("Main memory")
        await expect(figures).to_contain_text("2 models")
        await expect(page.locator("#server")).to_contain_text("LMI handlers")
        await expect(page.locator("#find-label")).to_be_hidden()


async def test_tokens_per_second_during_generation(open_console: OpenConsole, server: RunningServer) -> None:
    async with open_console() as page:
        rate = row(page, "steady").locator(".number")
        await expect(rate).to_have_text("0")
        headers, body = {"x-request-id": "steady"}, {"inputs": "Hi", "parameters": {"max_new_tokens": 400}}
        asking = asyncio.create_task(server.post("/predictions/steady", body, headers=headers))
        await expect(row(page, "steady")).to_contain_text("1 running, 0 waiting")
        await expect(rate).not_to_have_text("0")
        assert 0 < float(await rate.inner_text()) <= 21
        await expect(page.locator("#figures .value").first).not_to_have_text("0")
        await expect(page.locator("#figures")).to_contain_text("1 running")
        points = await row(page, "steady").locator("polyline").get_attribute("points")
        assert points is not None
        assert len(points.split()) >= 2
        server.dispatcher.models["steady"].running.abort("steady")
        await asking
        await expect(row(page, "steady")).to_contain_text("0 running, 0 waiting")


async def test_a_model_is_loaded_and_unloaded(open_console: OpenConsole, model_dir: ModelDirectory) -> None:
    directory = model_dir({"serving.properties": SCRIPTED}, "second")
    async with open_console() as page:
        await load(page, directory, Name="deux", Options="option.scripted_text=Oui.\n\n  option.max_model_len = 100 ")
        await expect(row(page, "deux").locator(".badge").first).to_have_text("ready")
        await expect(page.locator("#announcements")).to_have_text("deux is ready")
        await page.get_by_role("button", name="Unload deux").click()
        question = page.get_by_role("dialog", name="Unload deux?")
        await expect(question).to_contain_text("New requests will not find it.")
        await question.get_by_role("button", name="Cancel").click()
        await expect(page.get_by_role("button", name="Unload deux")).to_be_focused()
        await page.get_by_role("button", name="Unload deux").click()
        await confirm(page, "Unload")
        await expect(row(page, "deux")).to_have_count(0)
        await expect(page.locator("#announcements")).to_have_text("deux is unloaded")


async def test_all_fields_of_the_form_are_sent(
    open_console: OpenConsole, server: RunningServer, model_dir: ModelDirectory
) -> None:
    directory = model_dir({"serving.properties": SCRIPTED}, "fields")
    async with open_console() as page:
        await page.get_by_role("button", name="Load a model").click()
        form = page.get_by_role("dialog", name="Load a model")
        await form.get_by_text("More settings", exact=True).click()
        await form.get_by_label("Engine").select_option("Python")
        await form.get_by_label("Unload the model after the idle time").check()
        numbers = {"Queue size": "7", "Batch size": "2", "Batch delay": "5", "Min workers": "1", "Max workers": "2"}
        for label, value in {"Model": str(directory), "Idle time": "900", "Version": "v1", **numbers}.items():
            await form.get_by_label(label, exact=True).fill(value)
        await form.get_by_role("button", name="Load").click()
        await expect(row(page, "fields")).to_contain_text("version v1")
        await expect(row(page, "fields").locator(".good")).to_have_text("ready")
        found = server.dispatcher.models["fields"].server
        assert (found.job_queue_size, found.batch_size, found.max_batch_delay, found.max_idle_time) == (7, 2, 5, 900)
        assert (found.unload_idle, found.max_workers) == (True, 2)
        await load(page, directory, Version="v2")
        await page.get_by_role("button", name="Make default fields:v2").click()
        await expect(row(page, "fields").filter(has_text="version v2")).to_contain_text("default")
        assert server.dispatcher.models["fields"].version == "v2"
        for version in ("v1", "v2"):
            await page.get_by_role("button", name=f"Unload fields:{version}").click()
            await confirm(page, "Unload")
        await expect(row(page, "fields")).to_have_count(0)


async def test_progress_while_a_model_loads(
    open_console: OpenConsole, server: RunningServer, model_dir: ModelDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, go_on = model_dir({"serving.properties": SCRIPTED}, "slow"), asyncio.Event()
    reader = server.dispatcher.registry.reader
    assert reader is not None

    async def slowly(registration: Registration, report: Any) -> Model:
        report("copying", 250, 1000)
        await go_on.wait()
        return await reader(registration, report)

    monkeypatch.setattr(server.dispatcher.registry, "reader", slowly)
    async with open_console() as page:
        await load(page, directory)
        await expect(row(page, "slow").locator(".badge").first).to_have_text("fetching")
        await expect(row(page, "slow").get_by_role("progressbar")).to_have_attribute("value", "0.25")
        await expect(row(page, "slow")).to_contain_text("copying, 250 B of 1 kB")
        go_on.set()
        await expect(row(page, "slow").locator(".good")).to_have_text("ready")
        await expect(row(page, "slow").get_by_role("progressbar")).to_be_hidden()
        await page.get_by_role("button", name="Unload slow").click()
        await confirm(page, "Unload")
        await expect(row(page, "slow")).to_have_count(0)


async def test_what_cannot_be_loaded(open_console: OpenConsole, model_dir: ModelDirectory) -> None:
    directory = model_dir({"serving.properties": "option.rolling_batch=nothing\n"}, "wrong")
    async with open_console(expected=("409",)) as page:
        await load(page, directory, Options="dtype=bf16")
        form = page.get_by_role("dialog", name="Load a model")
        await expect(form.get_by_role("alert")).to_have_text(
            "Each line of the options must be option.NAME=VALUE. Given: dtype=bf16"
        )
        await form.get_by_label("Options").fill("")
        await form.get_by_label("Name", exact=True).fill("talker")
        await form.get_by_role("button", name="Load").click()
        await expect(form.get_by_role("alert")).to_contain_text("model `talker` is registered already")
        await form.get_by_label("Name", exact=True).fill("")
        await form.get_by_role("button", name="Load").click()
        await expect(form.get_by_role("alert")).to_contain_text("there is no backend `nothing`")
        await expect(form.get_by_label("Model", exact=True)).to_have_value(str(directory))
        await form.get_by_label("Options").fill("option.rolling_batch=scripted")
        await form.get_by_role("button", name="Load").click()
        await expect(form).to_be_hidden()
        await expect(row(page, "wrong").locator(".good")).to_have_text("ready")
        await page.get_by_role("button", name="Unload wrong").click()
        await confirm(page, "Unload")
        await expect(row(page, "wrong")).to_have_count(0)


async def test_a_model_that_cannot_be_loaded_can_be_removed(
    open_console: OpenConsole, model_dir: ModelDirectory
) -> None:
    directory = model_dir({"serving.properties": "option.rolling_batch=nothing\n"}, "wrong")
    async with open_console() as page:
        await load(page, directory)
        form = page.get_by_role("dialog", name="Load a model")
        await expect(form.get_by_role("alert")).to_be_visible()
        await form.get_by_role("button", name="Cancel").click()
        await expect(row(page, "wrong").locator(".bad")).to_have_text("failed")
        await expect(row(page, "wrong").locator(".reason")).to_contain_text("there is no backend `nothing`")
        await expect(page.locator("#announcements")).to_contain_text("wrong is failed: there is no backend")
        await page.get_by_role("button", name="Remove wrong").click()
        await confirm(page, "Remove")
        await expect(row(page, "wrong")).to_have_count(0)
        await expect(page.locator("#models-title")).to_be_focused()


async def test_several_front_ends_cannot_be_changed(open_console: OpenConsole, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler, "this_front", lambda: Front(0, 2))
    async with open_console() as page:
        await expect(page.locator("#unchangeable")).to_contain_text("Several front ends share the engines (--servers)")
        await expect(row(page, "talker")).to_be_visible()
        for name in ("Load a model", "Unload talker"):
            await expect(page.get_by_role("button", name=name)).to_be_hidden()
        assert await violations(page) == []


async def test_errors_of_requests(open_console: OpenConsole, server: RunningServer) -> None:
    cast(ScriptedBackend, server.dispatcher.models["talker"].backend).enqueue(Script("One", error="it broke"))
    async with open_console() as page:
        answer = await server.post("/predictions/talker", {"inputs": "Hi"}, headers={"x-request-id": "lost"})
        assert answer.status >= 400
        first = page.locator("#errors tbody tr").first
        await expect(first).to_contain_text("it broke")
        await expect(first).to_contain_text("lost")
        await expect(first.locator(".bad")).to_have_text(str(answer.status))
        for _ in range(2):
            await server.post(f"/predictions/{HOSTILE.replace('/', '')}", {"inputs": "Hi"})
        await expect(page.locator("#errors tbody tr").first).to_contain_text("2 times")
        await expect(page.locator("#errors img")).to_have_count(0)


async def test_many_models_can_be_looked_through(open_console: OpenConsole, model_dir: ModelDirectory) -> None:
    async with open_console() as page:
        async with page.expect_response("**/console/state"):
            pass
        await page.evaluate("document.querySelector('#find-label').hidden = false")
        await page.locator("#find").fill("TALK")
        await expect(row(page, "talker")).to_be_visible()
        await expect(row(page, "steady")).to_be_hidden()


async def test_a_server_that_does_not_answer(open_console: OpenConsole) -> None:
    async with open_console(expected=("ERR_FAILED",)) as page:
        await page.route("**/console/state", lambda route: route.abort())
        await expect(page.locator("#notice")).to_contain_text("The server is not responding.")
        await expect(row(page, "talker")).to_be_visible()
        dimmed = page.locator("section:has(#models)")
        await expect(dimmed).to_have_css("opacity", "0.5")
        await page.unroute("**/console/state")
        await expect(page.locator("#notice")).to_be_hidden()
        await expect(dimmed).to_have_css("opacity", "1")
        await expect(page.locator("#announcements")).to_have_text("The server is responding again")


async def test_nothing_is_asked_for_while_nobody_looks(open_console: OpenConsole) -> None:
    async with open_console() as page:
        hide = "Object.defineProperty(document, 'hidden', {value: %s, configurable: true});"
        changed = "document.dispatchEvent(new Event('visibilitychange'));"
        async with page.expect_response("**/console/state") as last:
            await page.evaluate(hide % "true" + changed)
        await (await last.value).finished()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        await page.wait_for_timeout(1500)
        assert asked == []
        async with page.expect_response("**/console/state"):
            await page.evaluate(hide % "false" + changed)


async def test_by_keyboard(open_console: OpenConsole) -> None:
    async with open_console() as page:
        await page.keyboard.press("Tab")
        await expect(page.get_by_text("Skip to the models")).to_be_focused()
        await page.get_by_role("button", name="Load a model").focus()
        await page.keyboard.press("Enter")
        await expect(page.get_by_label("Model", exact=True)).to_be_focused()
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("button", name="Load a model")).to_be_focused()
        await page.get_by_role("button", name="Unload talker").focus()
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("dialog").get_by_role("button", name="Cancel")).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("button", name="Unload talker")).to_be_focused()


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("size", [{"width": 1280, "height": 800}, PHONE], ids=["desktop", "phone"])
async def test_axe_finds_nothing(
    open_console: OpenConsole, server: RunningServer, colours: str, size: dict[str, int]
) -> None:
    await server.post("/predictions/none", {"inputs": "Hi"})
    async with open_console(color_scheme=colours, viewport=size) as page:
        await expect(page.locator("#errors")).to_be_visible()
        assert await violations(page) == []
        assert await page.evaluate("document.documentElement.scrollWidth") == size["width"]
        await page.get_by_role("button", name="Load a model").click()
        await page.get_by_text("More settings", exact=True).click()
        assert await violations(page) == []
        await page.keyboard.press("Escape")
        await page.get_by_role("button", name="Unload talker").click()
        assert await violations(page) == []


async def test_pages_link_to_each_other(open_console: OpenConsole) -> None:
    async with open_console() as page:
        for link, ready in (("Chat", "#text"), ("Console", "#models"), ("API", "#routes"), ("Console", "#models")):
            await page.get_by_role("link", name=link, exact=True).first.click()
            await expect(page.locator(ready)).to_be_attached()


async def test_the_token_is_asked_for_and_kept(browser: Browser, model_dir: ModelDirectory) -> None:
    access = AccessOptions(management_token=Secret.of(TOKEN))
    async with (
        running_server(model_dir({"serving.properties": SCRIPTED}), access=access) as running,
        watched_page(browser, running.server.url, path="/console", ready="dialog[open]", expected=("401",)) as page,
    ):
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        dialog = page.get_by_role("dialog", name="Management token")
        await expect(dialog).to_contain_text("management needs the management_token")
        await dialog.get_by_role("button", name="Cancel").click()
        await expect(page.locator("#notice")).to_contain_text("none was given")
        await page.get_by_role("button", name="Enter token").click()
        await dialog.get_by_label("Token").fill("wrong")
        await page.keyboard.press("Enter")
        await expect(dialog).to_contain_text("the one given is wrong")
        await dialog.get_by_label("Token").fill(TOKEN)
        await dialog.get_by_role("button", name="Use this token").click()
        await expect(row(page, "model")).to_be_visible()
        await page.reload()
        await expect(row(page, "model")).to_be_visible()
        await page.get_by_role("button", name="Unload model").click()
        await confirm(page, "Unload")
        await expect(page.locator("#no-models")).to_be_visible()
        assert await page.evaluate("localStorage.length") == 0
        assert TOKEN not in await page.content()
        assert not any(TOKEN in url for url in asked)


async def test_it_lives_where_the_server_is_managed(browser: Browser, model_dir: ModelDirectory) -> None:
    access = AccessOptions(management_address=ListenAddress("127.0.0.1", 0))
    async with running_server(model_dir({"serving.properties": SCRIPTED}), access=access) as running:
        management = running.server.management
        assert management is not None
        async with watched_page(browser, management.address, ready="#models tbody tr") as page:
            assert page.url == f"{management.address}/console"  # from /, as nobody chats here
            await expect(page.get_by_role("link", name="API")).to_be_visible()
            await expect(page.get_by_role("link", name="Chat")).to_be_hidden()
        async with watched_page(browser, running.server.url) as page:
            await expect(page.get_by_role("link", name="API")).to_be_visible()
            await expect(page.get_by_role("link", name="Console")).to_be_hidden()
        refused = await running.get("/console")
        assert (refused.status, "management_address" in refused.json()["error"]) == (403, True)
        assert (await running.get("/pages")).json() == {"pages": ["chat", "docs"]}
