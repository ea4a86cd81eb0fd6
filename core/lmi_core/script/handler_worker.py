"""The process of a `handle` function: loads the script, calls it, and sends what it returns."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from pathlib import Path

import zmq.asyncio

from lmi_core.script.handler_answers import failure, replies
from lmi_core.script.handler_protocol import (
    Cancel,
    End,
    Handle,
    Head,
    Load,
    Loaded,
    LoadFailed,
    Reply,
    Request,
    Started,
    decode_to_worker,
    encode,
)
from lmi_core.script.handler_script import HandlerScript
from lmi_core.script.inputs import Input, batch_of
from lmi_core.script.requirements import missing_package_hint
from lmi_core.script.tracebacks import own_traceback
from lmi_core.worker import Channel


def run(channel: Channel) -> None:
    """The target of the worker."""
    channel.send(encode(Started()))
    load = decode_to_worker(channel.receive())
    assert isinstance(load, Load), load
    script = HandlerScript(Path(load.script), load.function, load.properties)
    with asyncio.Runner() as runner:  # one event loop, so that an engine that is made in the first call works in all
        try:
            for result in script.load(load.adapters):
                runner.run(_check(result))
        except (Exception, SystemExit) as error:  # whatever the script raises
            directory = Path(load.script).parent
            words = f"{load.script} cannot be loaded\n{own_traceback(error, directory)}"
            channel.send(encode(LoadFailed(words + missing_package_hint(error, directory))))
            return
        channel.send(encode(Loaded(script.concurrent, script.functions)))
        if script.concurrent:
            runner.run(_serve_concurrently(script, channel))
        else:
            _serve_in_turn(script, channel, runner)


async def _check(result: object) -> None:
    """Raises RuntimeError if one of the calls by which a script loads its model was answered with an error."""
    async with aclosing(replies(0, result)) as found:
        async for reply in found:
            if isinstance(reply, Head) and reply.code >= 400:
                words = b" ".join(value for _, value in reply.content).decode(errors="replace")
                raise RuntimeError(f"the first call was answered with {reply.code}: {words}")


def _serve_in_turn(script: HandlerScript, channel: Channel, runner: asyncio.Runner) -> None:
    """A function that is not asynchronous gets one call at a time, in the main thread, where no event loop runs."""
    while True:
        message = decode_to_worker(channel.receive())
        if isinstance(message, Handle):
            runner.run(_send_unless_cancelled(_call(script, message), message.call_id, channel))


async def _send_unless_cancelled(answer: AsyncGenerator[Reply, None], call_id: int, channel: Channel) -> None:
    async with aclosing(answer):
        async for reply in answer:
            channel.send(encode(reply))
            # Nothing but a Cancel comes while the call runs; one for the call before it may be late.
            if not isinstance(reply, End) and _is_cancelled(channel, call_id):
                channel.send(encode(End(call_id)))
                return


def _is_cancelled(channel: Channel, call_id: int) -> bool:
    pending = channel.pending()
    return pending is not None and decode_to_worker(pending) == Cancel(call_id)


async def _serve_concurrently(script: HandlerScript, channel: Channel) -> None:
    socket = channel.asynchronous()
    tasks: dict[int, asyncio.Task[None]] = {}
    while True:
        message = decode_to_worker(await socket.recv())
        if isinstance(message, Handle):
            task = asyncio.create_task(_send(_call(script, message), message.call_id, socket))
            tasks[message.call_id] = task
            task.add_done_callback(partial(_forget, tasks, message.call_id))
        elif isinstance(message, Cancel) and message.call_id in tasks:
            tasks[message.call_id].cancel()


def _forget(tasks: dict[int, asyncio.Task[None]], call_id: int, _: asyncio.Task[None]) -> None:
    del tasks[call_id]


async def _send(answer: AsyncGenerator[Reply, None], call_id: int, socket: zmq.asyncio.Socket) -> None:
    try:
        async with aclosing(answer):
            async for reply in answer:
                await socket.send(encode(reply))
    except asyncio.CancelledError:
        await socket.send(encode(End(call_id)))


def _call(script: HandlerScript, message: Handle) -> AsyncGenerator[Reply, None]:
    """What the function answers, or how it failed. A function that is not asynchronous runs now."""
    requests = [_input(request) for request in message.requests]
    inputs = requests[0] if len(requests) == 1 else batch_of(requests)
    try:
        result = script.call(message.function, inputs)
    except (Exception, SystemExit) as error:  # whatever the user's function raises
        script.log(error, inputs)
        return _each(failure(message.call_id, error, script.name_of(message.function), begun=False))
    return _answer(script, message, inputs, result)


async def _answer(script: HandlerScript, message: Handle, inputs: Input, result: object) -> AsyncGenerator[Reply, None]:
    begun = False
    try:
        async with aclosing(replies(message.call_id, result)) as found:
            async for reply in found:
                begun = True
                yield reply
    except (Exception, SystemExit) as error:
        script.log(error, inputs)
        for reply in failure(message.call_id, error, script.name_of(message.function), begun):
            yield reply


async def _each(found: list[Reply]) -> AsyncGenerator[Reply, None]:
    for reply in found:
        yield reply


def _input(request: Request) -> Input:
    found = Input()
    found.properties = request.properties
    for key, value in request.content:
        found.content.add(key, value)
    return found
