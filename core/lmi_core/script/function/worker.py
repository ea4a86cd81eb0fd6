"""The worker process of a model function, which loads the script, calls it, and sends its results."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from pathlib import Path

import zmq.asyncio

from lmi_core.errors import ConfigurationError, OutOfMemory
from lmi_core.host.out_of_memory import is_out_of_memory
from lmi_core.script.djl_names.inputs import Input, batch_of, input_of
from lmi_core.script.environment import missing_package_hint
from lmi_core.script.function.answers import FAILURES, failure, replies
from lmi_core.script.function.protocol import (
    OUT_OF_MEMORY,
    Cancel,
    End,
    Handle,
    Head,
    Load,
    Loaded,
    Reply,
    Request,
    Working,
    decode_to_worker,
)
from lmi_core.script.function.script import REGISTER_ADAPTER, FunctionScript, description
from lmi_core.script.rolling.batch import RollingBatch
from lmi_core.script.tracebacks import own_traceback
from lmi_core.workers.channel import Channel
from lmi_core.workers.messages import LoadFailed, encode


def run(channel: Channel) -> None:
    """Serve a model's script until the server ends the process."""
    load = channel.begin(decode_to_worker)
    assert isinstance(load, Load), load
    script = FunctionScript(Path(load.script), load.function, load.properties)
    # One event loop for all calls, because an engine created in the first call may be bound to it
    with asyncio.Runner() as runner:
        try:
            failure = load_function(script, load.adapters, runner)
        except ConfigurationError as error:
            channel.send(encode(LoadFailed.because_of(error, load.script)))
            return
        if script.concurrent:
            channel.send(encode(Loaded(None, failure)))
            runner.run(_serve_concurrently(script, channel))
        elif load.rolling_batch_size is not None:
            channel.send(encode(Loaded(load.rolling_batch_size, failure)))
            _serve_rolling_batch(script, channel, runner, load.content_type)
        else:
            channel.send(encode(Loaded(1, failure)))
            while True:  # one call at a time, in the main thread, where no event loop is running
                message = decode_to_worker(channel.receive())
                if isinstance(message, Handle):
                    runner.run(_send_unless_cancelled(_call(script, message), message.call_id, channel))


async def _send_unless_cancelled(answer: AsyncGenerator[Reply, None], call_id: int, channel: Channel) -> None:
    async with aclosing(answer):
        async for reply in answer:
            channel.send(encode(reply))
            # Only a Cancel arrives while a call runs; it may be a late one for the previous call.
            pending = None if isinstance(reply, End) else channel.pending()
            if pending is not None and decode_to_worker(pending) == Cancel(call_id):
                channel.send(encode(End(call_id)))
                return


def _serve_rolling_batch(script: FunctionScript, channel: Channel, runner: asyncio.Runner, content_type: str) -> None:
    """Call a function of the rolling-batch form repeatedly with all unfinished requests."""
    batch = RollingBatch(script, runner, content_type)
    while True:
        received = channel.receive() if batch.empty else channel.pending()
        while received is not None:
            message = decode_to_worker(received)
            if isinstance(message, Cancel):
                _send_all(batch.cancel(message.call_id), channel)
            elif isinstance(message, Handle) and message.function == script.function:
                (request,) = message.requests
                batch.add(message.call_id, input_of(request.properties, request.content))
            elif isinstance(message, Handle):
                runner.run(_send_answer(_call(script, message), channel))
            received = channel.pending()
        _send_all(batch.step(), channel)


def _send_all(replies: Iterable[Reply | Working], channel: Channel) -> None:
    for reply in replies:
        channel.send(encode(reply))


async def _send_answer(answer: AsyncGenerator[Reply, None], channel: Channel) -> None:
    async with aclosing(answer):
        async for reply in answer:
            channel.send(encode(reply))


async def _serve_concurrently(script: FunctionScript, channel: Channel) -> None:
    socket = channel.asynchronous()
    tasks: dict[int, asyncio.Task[None]] = {}
    while True:
        message = decode_to_worker(await socket.recv())
        if isinstance(message, Handle):

            def forget(_: asyncio.Task[None], call_id: int = message.call_id) -> None:
                del tasks[call_id]

            task = asyncio.create_task(_send(_call(script, message), message.call_id, socket))
            tasks[message.call_id] = task
            task.add_done_callback(forget)
        elif isinstance(message, Cancel) and message.call_id in tasks:
            tasks[message.call_id].cancel()


async def _send(answer: AsyncGenerator[Reply, None], call_id: int, socket: zmq.asyncio.Socket) -> None:
    try:
        async with aclosing(answer):
            async for reply in answer:
                await socket.send(encode(reply))
    except asyncio.CancelledError:
        await socket.send(encode(End(call_id)))


def _call(script: FunctionScript, message: Handle) -> AsyncGenerator[Reply, None]:
    """Return the messages for the function's result or failure; a synchronous function runs before this returns."""
    requests = [input_of(request.properties, request.content) for request in message.requests]
    inputs = requests[0] if len(requests) == 1 else batch_of(requests)
    try:
        return _answer(script, message, inputs, script.call(message.function, inputs))
    except (Exception, SystemExit) as error:  # a user's function may raise anything
        return _failure(script, message, inputs, error)


async def _answer(
    script: FunctionScript, message: Handle, inputs: Input, result: object
) -> AsyncGenerator[Reply, None]:
    begun = False
    try:
        async with aclosing(replies(message.call_id, result)) as found:
            async for reply in found:
                begun = True
                if message.function == script.function and isinstance(reply, Head) and reply.code < FAILURES:
                    script.initialization_error = None
                yield reply
    except (Exception, SystemExit) as error:
        async for reply in _failure(script, message, inputs, error, begun=begun):
            yield reply


async def _failure(
    script: FunctionScript, message: Handle, inputs: Input, error: BaseException, *, begun: bool = False
) -> AsyncGenerator[Reply, None]:
    script.log(error, inputs.get_batches(), message.function)
    words, note = script.name_of(message.function), script.note(error)
    for reply in failure(message.call_id, error, words, begun, note):
        yield reply


def load_function(script: FunctionScript, adapters: Mapping[str, Request], runner: asyncio.Runner) -> str | None:
    """Import the script, call its function without content, register the adapters.

    Return None, or the traceback of a call without content that failed: there are functions that do not support it, and
    some load their models with the first request instead. Raise ConfigurationError, or
    OutOfMemory, for any other failure.
    """
    try:
        script.load()
        failure = _initialize(script, runner)
        failures = [failure] if failure is not None else []
        for name, request in adapters.items() if script.has(REGISTER_ADAPTER) else ():
            try:
                runner.run(_check(script.call(REGISTER_ADAPTER, input_of(request.properties, request.content))))
            except Exception as error:
                if not failures:
                    raise
                failures.append(f"{REGISTER_ADAPTER} then failed for the adapter {name}\n{_explain(error, script)}")
    except (Exception, SystemExit) as error:  # a script may raise anything
        explained = f"{script.path} cannot be loaded\n{_explain(error, script)}"
        raise (OutOfMemory if is_out_of_memory(error) else ConfigurationError)(explained) from None
    return "\n".join(failures) or None


def _initialize(script: FunctionScript, runner: asyncio.Runner) -> str | None:
    """Call the function without content, and return the traceback if that failed, or None.

    Raise SystemExit and out-of-memory errors, which end the process.
    """
    try:
        runner.run(_check(script.call(script.function, Input())))
    except Exception as error:
        if is_out_of_memory(error):
            raise
        script.initialization_error = description(error)
        return _explain(error, script)
    return None


async def _check(result: object) -> None:
    """Raise RuntimeError if a loading call was answered with an error, or MemoryError if memory ran out."""
    async with aclosing(replies(0, result)) as found:
        async for reply in found:
            if isinstance(reply, Head) and reply.code >= 400:
                words = b" ".join(value for _, value in reply.content).decode(errors="replace")
                kind = MemoryError if reply.code == OUT_OF_MEMORY else RuntimeError
                raise kind(f"the first call was answered with {reply.code}: {words}")


def _explain(error: BaseException, script: FunctionScript) -> str:
    directory = script.path.parent
    return own_traceback(error, directory) + missing_package_hint(error, directory)
