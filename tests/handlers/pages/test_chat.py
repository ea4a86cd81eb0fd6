"""The chat page in a browser: messages, answers as they come, and what can be done with both."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import Route, expect

from tests.handlers.pages.conftest import HOSTILE, MODELS, OpenPage, Site
from tests.handlers.pages.steps import answered, answers, ask, say, set_parameter, show_probabilities

pytestmark = pytest.mark.asyncio(loop_scope="session")

SECONDS = 60
HALF_AN_ANSWER = b"""\
HTTP/1.1 200 OK\r
Content-Type: text/event-stream\r
Content-Length: 1000\r
\r
data: {"choices": [{"delta": {"content": "One"}}]}

"""


async def test_models_can_be_picked(open_page: OpenPage) -> None:
    async with open_page() as page:
        names = await page.locator("#model option").all_inner_texts()
        assert sorted(names) == sorted([HOSTILE, *MODELS])
        await expect(page.locator(".welcome h2")).to_have_text("talker")
        await expect(page.locator("#text")).to_be_focused()
        await expect(page.locator(".questions button")).to_have_count(4)
        await page.locator("#model").select_option("vectors")
        await expect(page.locator(".questions button")).to_have_count(0)
        await expect(page.locator(".welcome")).to_contain_text("The model returns vectors")
        await expect(page.locator("#send")).to_be_disabled()


async def test_an_answer_comes_token_by_token(open_page: OpenPage, site: Site) -> None:
    script = site.say("One two three", hold=True)
    async with open_page() as page:
        await show_probabilities(page)
        await say(page, "Count.")
        await asyncio.wait_for(script.started.wait(), SECONDS)
        await expect(answers(page).locator(".token")).to_have_text(["One", " two", " three"])
        await expect(page.locator("#stop")).to_be_visible()
        await expect(page.locator("#send")).to_be_hidden()
        await expect(page.locator("#announcements")).to_have_text("The model is answering")
        request = site.backend().history[-1]
        assert request.prompt == "user: Count.\nassistant:"
        assert (request.log_probs, request.parameters.num_top_tokens) == (True, 5)
        await page.locator("#stop").click()
        await asyncio.wait_for(script.closed.wait(), SECONDS)  # the engine's work has ended
        await expect(answers(page).locator(".stats")).to_contain_text("stopped")
        await expect(page.locator("#send")).to_be_visible()


async def test_statistics_of_an_answer(open_page: OpenPage, site: Site) -> None:
    site.say("One two three four")
    async with open_page() as page:
        await set_parameter(page, "max_tokens", "3")
        assert await ask(page, "Count.") == "One two three"
        statistics = await answers(page).locator(".stats").inner_text()
        assert statistics.startswith("3 tokens · ")
        assert " tokens/s · first token after 0." in statistics
        assert statistics.endswith(" s · reached max tokens")
        await expect(page.locator("#announcements")).to_have_text("talker: One two three")


async def test_a_full_context_is_no_limit_of_tokens(open_page: OpenPage, site: Site) -> None:
    site.say("One two three four five six seven")
    async with open_page() as page:
        await page.locator("#text").fill("word " * 2044)
        await page.locator("#text").press("Enter")
        await expect(answers(page).locator(".stats")).to_contain_text("the context is full")
        await expect(page.locator("#context")).to_have_text("2,048 of 2,048 tokens of context")


async def test_a_conversation_goes_on(open_page: OpenPage, site: Site) -> None:
    site.say("Hello")
    site.say("Fine")
    async with open_page() as page:
        await page.locator("#parameters-tab").click()
        await page.locator("#system").fill("Be kind.")
        await ask(page, "Hi")
        await ask(page, "How are you?")
        prompt = "system: Be kind.\nuser: Hi\nassistant: Hello\nuser: How are you?\nassistant:"
        assert site.backend().history[-1].prompt == prompt


async def test_the_model_and_the_context_used(open_page: OpenPage, site: Site) -> None:
    site.say("Hello")
    async with open_page(expected=("Failed to load",)) as page:
        card = page.locator(".model-card")
        await expect(card.locator("h2")).to_have_text("talker")
        await expect(card.locator("dt")).to_have_text(["Context", "Type", "Engine"])
        await expect(card.locator("dd")).to_have_text(["2,048 tokens", "chat, tools", "scripted"])
        await expect(page.locator("#context")).to_be_hidden()
        await ask(page, "Hi")
        request = site.backend().history[-1]
        used = f"{len(request.prompt_ids) + 1} of 2,048 tokens of context"
        await expect(page.locator("#context")).to_have_text(used)
        script = site.say("One two three", hold=True)
        await say(page, "Count.")
        await asyncio.wait_for(script.started.wait(), SECONDS)
        request = site.backend().history[-1]
        used = f"{len(request.prompt_ids) + 3} of 2,048 tokens of context"
        await expect(page.locator("#context")).to_have_text(used)
        await page.locator("#stop").click()
        await expect(answers(page).locator(".stats")).to_have_count(2)
        site.say("", error="the engine is out of order")
        await ask(page, "Go on.")
        await expect(page.get_by_role("alert")).to_have_text("the engine is out of order")
        await expect(page.locator("#context")).to_have_text(used)
        await page.reload()
        await expect(page.locator("#context")).to_have_text(used)
        await page.get_by_role("button", name="New chat").click()
        await expect(page.locator("#context")).to_be_hidden()


async def test_edit_and_send_again(open_page: OpenPage, site: Site) -> None:
    for text in ("Hello", "Fine", "Good day"):
        site.say(text)
    async with open_page() as page:
        await ask(page, "Hi")
        await ask(page, "How are you?")
        first = page.locator(".turn.user").first
        await first.get_by_role("button", name="Edit").click()
        await page.get_by_label("Edited message").fill("Good morning")
        await page.get_by_role("button", name="Send again").click()
        await expect(answers(page)).to_have_count(1)
        assert await answered(page) == "Good day"
        assert site.backend().history[-1].prompt == "user: Good morning\nassistant:"
        await first.get_by_role("button", name="Edit").click()
        await page.keyboard.press("Escape")
        await expect(first.locator(".said")).to_have_text("Good morning")


async def test_generate_again_and_begin_anew(open_page: OpenPage, site: Site) -> None:
    site.say("Hello")
    site.say("Hello again")
    async with open_page() as page:
        await ask(page, "Hi")
        await page.get_by_role("button", name="Regenerate").click()
        await expect(answers(page).locator(".said").last).to_have_text("Hello again")
        await expect(answers(page)).to_have_count(1)
        assert site.backend().history[-1].prompt == "user: Hi\nassistant:"
        await page.get_by_role("button", name="New chat").click()
        await expect(page.locator(".turn")).to_have_count(0)
        await expect(page.locator("#text")).to_be_focused()


async def test_only_parameters_that_are_set_are_sent(open_page: OpenPage, site: Site) -> None:
    async with open_page() as page:
        async with page.expect_request("**/v1/chat/completions") as sent:
            await ask(page, "Hi")
        assert (await sent.value).post_data_json == {
            "model": "talker",
            "messages": [{"role": "user", "content": "Hi"}],
            "logprobs": True,
            "top_logprobs": 5,
            "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        }
        for name, value in {"temperature": "0,5", "seed": "7", "stop": "really\nfield", "top_k": "3"}.items():
            await set_parameter(page, name, value)
        await ask(page, "Hi")
        parameters = site.backend().history[-1].parameters
        assert (parameters.temperature, parameters.seed, parameters.top_k) == (0.5, 7, 3)
        assert parameters.stop_sequences == ["really", "field"]


async def test_a_wrong_parameter_is_told_before_anything_is_sent(open_page: OpenPage, site: Site) -> None:
    async with open_page() as page:
        asked = len(site.backend().history)
        await set_parameter(page, "temperature", "3")
        await expect(page.locator("#p-temperature-wrong")).to_have_text("Temperature must be from 0 to 2")
        await say(page, "Hi")
        await expect(page.locator("#p-temperature")).to_be_focused()
        await expect(page.locator(".turn")).to_have_count(0)
        await set_parameter(page, "temperature", "")
        await page.locator("#text").press("Enter")
        await answered(page)
        assert len(site.backend().history) == asked + 1


async def test_errors_are_the_servers_sentences(open_page: OpenPage, site: Site) -> None:
    site.say("One two", error="the engine is out of order")
    async with open_page(expected=("400",)) as page:
        await show_probabilities(page)
        await ask(page, "Count.")
        await expect(page.get_by_role("alert")).to_have_text("the engine is out of order")
        await expect(answers(page).locator(".token")).to_have_text(["One", " two"])
        await page.get_by_role("button", name="New chat").click()
        await say(page, "word " * 3000)
        await expect(page.get_by_role("alert")).to_contain_text("This model's maximum context length is 2048 tokens.")
        await page.get_by_role("button", name="Start a new chat").click()
        await expect(page.locator(".welcome")).to_be_visible()


async def test_a_server_that_is_gone(open_page: OpenPage) -> None:
    async with open_page(expected=("ERR_FAILED",)) as page:
        await page.route("**/v1/chat/completions", lambda route: route.abort())
        await say(page, "Hi")
        await expect(page.get_by_role("alert")).to_have_text("The server is not responding.")


@asynccontextmanager
async def broken_server(leave: asyncio.Event) -> AsyncIterator[str]:
    """Yield the address of a server that disconnects in the middle of an answer, at this event."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HALF_AN_ANSWER)
        await leave.wait()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_a_connection_that_is_lost(open_page: OpenPage) -> None:
    leave = asyncio.Event()
    async with broken_server(leave) as url, open_page(expected=("ERR_",)) as page:
        await page.route("**/v1/chat/completions", lambda route: route.continue_(url=f"{url}/v1/chat/completions"))
        await say(page, "Count.")
        await expect(answers(page).locator(".said").last).to_have_text("One")
        leave.set()
        alert = page.get_by_role("alert")
        await expect(alert).to_have_text("The connection was lost: the answer is incomplete.")
        assert await answered(page) == "One"
        assert await alert.evaluate("alert => getComputedStyle(alert).marginTop") == "8px"


async def test_what_a_model_writes_is_text(open_page: OpenPage, site: Site) -> None:
    text = "<script>alert(2)</script> <img src=x onerror=alert(3)> <b>bold</b>"
    site.say(text, "hostile")
    async with open_page(model=HOSTILE) as page:
        await expect(page.locator(".welcome h2")).to_have_text(HOSTILE)
        assert await ask(page, text) == text
        await expect(page.locator(".turn.user .said")).to_have_text(text)
        await expect(answers(page).locator("h2")).to_have_text(HOSTILE)
        await show_probabilities(page)
        await answers(page).locator(".token").first.hover()
        await expect(page.locator("#token-details")).to_contain_text("<script>alert(2)</script>")
        await page.locator("#requests-tab").click()
        await expect(page.locator("#requests pre").first).to_contain_text(HOSTILE)
        assert await page.locator("#transcript img, #transcript script, #transcript b").count() == 0


async def test_reasoning_is_folded(open_page: OpenPage, site: Site) -> None:
    site.say("<think> Two and two .</think> Four", "thinker")
    async with open_page(model="thinker") as page:
        assert (await ask(page, "2 + 2?")).strip() == "Four"
        reasoning = answers(page).locator(".reasoning")
        assert await reasoning.get_attribute("open") is None
        await reasoning.locator("summary").click()
        await expect(reasoning.locator(".said")).to_contain_text("Two and two")


async def test_adapters_can_be_picked(open_page: OpenPage) -> None:
    async with open_page() as page:
        await expect(page.locator("#adapter option")).to_have_text(["none", "french"])
        await page.locator("#adapter").select_option("french")
        assert (await ask(page, "Hi")).splitlines()[0] == '{"by":"french"}'  # as its own formatter writes
        await expect(answers(page).locator("h2")).to_have_text("french")
        await page.locator("#model").select_option("thinker")
        await expect(page.locator("#adapter-label")).to_be_hidden()


async def test_a_model_that_is_loading(open_page: OpenPage, site: Site) -> None:
    model = site.running.dispatcher.models["talker"]
    model.ready = False
    try:
        async with open_page(expected=("503",)) as page:
            await expect(page.locator("#notice")).to_have_text("Not ready yet: model talker is loading")
            await expect(page.locator("#send")).to_be_disabled()
            model.ready = True
            await expect(page.locator("#notice")).to_be_empty()
            await expect(page.locator("#send")).to_be_enabled()
    finally:
        model.ready = True


async def test_a_model_whose_kind_is_not_known_yet(open_page: OpenPage) -> None:
    async with open_page(expected=("503",), reduced_motion="reduce") as page:
        await page.route("**/v1/models", without_capabilities)
        await page.route("**/ping", lambda route: route.fulfill(status=503, body="loading"))
        await page.reload()
        await expect(page.locator("#notice")).to_have_text("Not ready yet: loading")
        await expect(page.locator(".welcome")).to_contain_text("The model is loading.")
        await expect(page.locator("#clear")).to_have_text("New chat")
        await expect(page.locator("#send")).to_have_text("Send")
        ground = "send => getComputedStyle(send).backgroundColor"
        disabled = await page.locator("#send").evaluate(ground)
        await page.unroute("**/v1/models")
        await page.unroute("**/ping")
        await expect(page.locator("#send")).to_be_enabled()
        assert await page.locator("#send").evaluate(ground) != disabled


async def without_capabilities(route: Route) -> None:
    answer = await route.fetch()
    models = await answer.json()
    await route.fulfill(json={"data": [{**each, "capabilities": None} for each in models["data"]]})
