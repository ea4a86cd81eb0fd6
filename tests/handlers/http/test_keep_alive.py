"""Comments that keep streams of server-sent events alive."""

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest

from lmi_handlers.http.exchange import KEEP_ALIVE
from lmi_plugins.backends.scripted import Script
from tests.conftest import SCRIPTED, LoopClock, ModelDirectory, RunningServer, Serve
from tests.core.admission.dialects import CHAT, COMPLETION, DIALECTS, STREAM, Dialect
from tests.loop_clock import until

EVENT_STREAM = "text/event-stream"
INTERVAL = 20
OFTEN = f"option.sse_keep_alive_interval={INTERVAL}\n"
FORMATTER = """\
from lmi import output_formatter
@output_formatter{}
def f(output):
    return output.delta
"""


class Reading:
    """A stream that is read as it comes."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.status, self.content_type = response.status, response.content_type
        self._response = response

    async def comment(self) -> None:
        """Read a comment, before which nothing else must come."""
        assert await self._response.content.readexactly(len(KEEP_ALIVE)) == KEEP_ALIVE

    def leave(self) -> None:
        self._response.close()

    async def rest(self) -> bytes:
        return await self._response.content.read()

    async def text(self) -> bytes:
        """Return what follows the comments that begin the rest."""
        rest = await self.rest()
        while rest.startswith(KEEP_ALIVE):
            rest = rest.removeprefix(KEEP_ALIVE)
        return rest


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as client:
        yield client


async def start(serve: Serve, model_dir: ModelDirectory, properties: str = OFTEN, code: str = "") -> RunningServer:
    files = {"serving.properties": SCRIPTED + properties} | ({"model.py": code} if code else {})
    return await serve(model_dir(files))


async def ask(client: aiohttp.ClientSession, server: RunningServer, dialect: Dialect) -> Reading:
    """Return the stream once its head is there."""
    path, payload = dialect.stream_request
    return Reading(await client.post(server.server.url + path, json=payload))


async def interval_after(clock: LoopClock, server: RunningServer, count: int) -> None:
    """Let an interval be over once the engine works on the last of so many requests."""
    await until(lambda: len(server.scripted.history) == count)
    await clock.pass_time(INTERVAL)


@pytest.mark.parametrize("name", DIALECTS)
async def test_streams_of_events_get_comments_until_the_first_one(
    clock: LoopClock, serve: Serve, model_dir: ModelDirectory, client: aiohttp.ClientSession, name: str
) -> None:
    server, dialect = await start(serve, model_dir), DIALECTS[name]
    prefilled = asyncio.Event()
    server.scripted.enqueue(Script("one two"), Script("one two", prefilled=prefilled))
    plain = await ask(client, server, dialect)
    expected = await plain.text()
    asking = asyncio.create_task(ask(client, server, dialect))
    await interval_after(clock, server, 2)
    if plain.content_type == EVENT_STREAM:
        reading = await asking  # the head comes with the first comment
        await reading.comment()
        for _ in range(2):
            await clock.pass_time(INTERVAL)
            await reading.comment()
        prefilled.set()
        text = await reading.rest()
    else:
        assert not asking.done()  # nothing is sent before the first token
        prefilled.set()
        reading = await asking
        text = await reading.rest()
    assert (reading.status, reading.content_type) == (200, plain.content_type)
    assert KEEP_ALIVE not in text
    assert text.count(b"\n") == expected.count(b"\n")
    assert b"two" in text


async def test_error_before_the_first_comment_has_its_status(
    clock: LoopClock, serve: Serve, model_dir: ModelDirectory, client: aiohttp.ClientSession
) -> None:
    late = "option.first_token_timeout=0.02\noption.sse_keep_alive_interval=60\n"
    server = await start(serve, model_dir, late)
    server.scripted.enqueue(Script(hold=True))
    assert (await ask(client, server, DIALECTS["openai"])).status == 504


async def test_error_after_a_comment_ends_the_stream(
    clock: LoopClock, serve: Serve, model_dir: ModelDirectory, client: aiohttp.ClientSession
) -> None:
    late = 5 * INTERVAL
    server = await start(serve, model_dir, OFTEN + f"option.first_token_timeout={late}\n")
    script = Script(hold=True)
    server.scripted.enqueue(script)
    asking = asyncio.create_task(ask(client, server, DIALECTS["openai"]))
    await interval_after(clock, server, 1)
    reading = await asking
    await reading.comment()
    await clock.pass_time(late)
    text = await reading.text()
    assert (reading.status, script.closed.is_set()) == (200, True)
    assert text.startswith(b'data: {"error":{"message":"no first token was generated')
    assert text.endswith(b"data: [DONE]\n\n")


async def test_pause_between_events(
    clock: LoopClock, serve: Serve, model_dir: ModelDirectory, client: aiohttp.ClientSession
) -> None:
    server = await start(serve, model_dir)
    script = Script("one two", hold=True)
    server.scripted.enqueue(script)
    async with client.post(server.server.url + "/v1/completions", json=COMPLETION | STREAM) as response:
        await script.started.wait()
        for _ in range(3):  # in the first of which there were events
            await clock.pass_time(INTERVAL)
        seen = b""
        while not seen.endswith(KEEP_ALIVE * 2):
            seen += await response.content.readany()
    events = seen.removesuffix(KEEP_ALIVE * 2).split(b"\n\n")
    assert [event[:5] for event in events] == [b"data:", b"data:", b""]
    await script.closed.wait()


async def test_client_that_leaves_while_it_is_kept_alive(
    clock: LoopClock, serve: Serve, model_dir: ModelDirectory, client: aiohttp.ClientSession
) -> None:
    server = await start(serve, model_dir)
    script = Script(hold=True)
    server.scripted.enqueue(script)
    asking = asyncio.create_task(ask(client, server, DIALECTS["openai chat"]))
    await interval_after(clock, server, 1)
    reading = await asking
    assert reading.status == 200
    reading.leave()
    await script.closed.wait()
    assert not server.dispatcher.in_flight


@pytest.mark.parametrize("payload", [CHAT, CHAT | STREAM])
async def test_none_without_the_option_and_none_in_whole_answers(
    clock: LoopClock, serve: Serve, model_dir: ModelDirectory, payload: dict[str, object]
) -> None:
    server = await start(serve, model_dir, "" if "stream" in payload else OFTEN)
    prefilled = asyncio.Event()
    server.scripted.enqueue(Script("one", prefilled=prefilled))
    asking = asyncio.create_task(server.post("/v1/chat/completions", payload))
    await interval_after(clock, server, 1)
    prefilled.set()
    assert b"keep-alive" not in (await asking).body


@pytest.mark.parametrize(("declared", "kept"), [("", False), ('(content_type="text/event-stream")', True)])
async def test_formatter_of_the_model_gets_comments_where_it_declares_its_content_type(
    clock: LoopClock, serve: Serve, model_dir: ModelDirectory, declared: str, *, kept: bool
) -> None:
    server = await start(serve, model_dir, OFTEN, FORMATTER.format(declared))
    prefilled = asyncio.Event()
    server.scripted.enqueue(Script("one two", prefilled=prefilled))
    asking = asyncio.create_task(server.post("/v1/chat/completions", CHAT | STREAM))
    await interval_after(clock, server, 1)
    prefilled.set()
    answer = await asking
    assert answer.body.startswith(KEEP_ALIVE) == kept
    assert answer.body.endswith(b"one two")
