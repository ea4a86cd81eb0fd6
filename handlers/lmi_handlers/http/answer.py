"""One request's way from the bytes that came in to the bytes that go out."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import aclosing, asynccontextmanager

from aiohttp import web

from lmi_core.errors import GenerationFailed, GenerationTimeout, InvalidParameter, LmiError
from lmi_core.formatter import check_sequences, without_unread
from lmi_core.generation import GenerationOutput
from lmi_core.handler import Call, Generation, Handler, Route
from lmi_core.inference import Inference
from lmi_core.script.formatters.customization import Customization
from lmi_core.script.function.runtime import ModelFunction
from lmi_core.serving.dispatcher import Dispatcher
from lmi_core.serving.model import Model
from lmi_handlers.http.exchange import Exchange
from lmi_handlers.http.named_content import named_content
from lmi_handlers.http.same_origin import refuse_foreign_pages

logger = logging.getLogger(__name__)


async def answer(dispatcher: Dispatcher, handler: Handler, route: Route, request: web.Request) -> web.StreamResponse:
    """Admit, read, parse, validate, generate, format, write. What goes wrong becomes the dialect's own error."""
    begun = time.perf_counter()
    path = request.rel_url.raw_path  # as it came: what is decoded may hold line breaks
    exchange = Exchange(handler, route, request)
    try:
        if route.refuses_foreign_pages:
            refuse_foreign_pages(request, dispatcher.allowed_hosts)
        if route.answer is None:
            response = await _admit(dispatcher, exchange)
        else:
            call = await exchange.call(dispatcher.largest_request)
            response = await exchange.send(await route.answer(call, dispatcher))
    except LmiError as error:
        response = await exchange.fail(error)
    except (ConnectionError, asyncio.CancelledError):
        logger.info("request %s: %s ended: the client left, or the server stops", exchange.request_id, path)
        raise asyncio.CancelledError from None  # aiohttp logs a ConnectionError with its traceback
    except Exception:
        logger.exception("request %s failed", exchange.request_id)
        response = await exchange.fail(LmiError("internal error: the server's log has more under this request's id"))
    milliseconds = (time.perf_counter() - begun) * 1000
    logger.info("request %s: %s %d in %.0f ms", exchange.request_id, path, response.status, milliseconds)
    return response


async def _admit(dispatcher: Dispatcher, exchange: Exchange) -> web.StreamResponse:
    model = exchange.model = await _find_model(dispatcher, exchange)
    with dispatcher.admit(model):
        if model.function is not None:
            return await _relay(exchange, model, model.function)
        return await _parse(exchange, model)


async def _find_model(dispatcher: Dispatcher, exchange: Exchange) -> Model:
    handler, request = exchange.handler, exchange.request
    name = handler.model_name(request.match_info, request.headers)
    if name is None and dispatcher.only_model is None:
        name = handler.model_name_in_body(await exchange.body(dispatcher.largest_request))
    return dispatcher.find(name)


async def _receive(exchange: Exchange, model: Model) -> Call:
    return exchange.handler.receive(await exchange.call(model.plan.server.max_request_size), model)


async def _relay(exchange: Exchange, model: Model, function: ModelFunction) -> web.StreamResponse:
    """The model's own function takes the request's contents by name, and its answer goes out as it is."""
    call = await _receive(exchange, model)
    async with aclosing(function.answer(call, await named_content(call))) as replies:
        async for reply in replies:
            await exchange.relay(reply)
    return await exchange.finish()


async def _parse(exchange: Exchange, model: Model) -> web.StreamResponse:
    call = exchange.handler.name_adapters(await _receive(exchange, model), model)
    call, custom = model.customize(call)
    call = await custom.read(call)
    parsed = exchange.handler.parse(call, model)
    if parsed.timeout is None:
        return await _work(exchange, model, parsed, custom)
    async with _within(parsed.timeout):
        return await _work(exchange, model, parsed, custom)


def _work(
    exchange: Exchange, model: Model, parsed: Generation | Inference, custom: Customization
) -> Coroutine[None, None, web.StreamResponse]:
    if isinstance(parsed, Generation):
        return _generate(exchange, model, parsed, custom)
    if custom.adapters:
        raise InvalidParameter("a request of tensors cannot name one of the model's `adapters`")
    return _infer(exchange, model, parsed)


async def _generate(
    exchange: Exchange, model: Model, generation: Generation, custom: Customization
) -> web.StreamResponse:
    base = generation.formatter
    formatter = exchange.formatter = custom.formatter(base)
    exchange.ignore(model, generation.ignored)  # before anything else can fail
    generation = model.drop_unknown(generation)
    exchange.ignore(model, generation.ignored)
    requests = await model.validate(custom.adapted(generation.requests), exchange.request_id)
    check_sequences(base, requests)
    requests = without_unread(formatter, requests)
    output = GenerationOutput(requests)
    async with aclosing(model.generate(requests, exchange.request_id)) as steps:
        async for step in steps:
            output.add(step)
            await exchange.write(output, formatter)
    return await exchange.finish()


async def _infer(exchange: Exchange, model: Model, inference: Inference) -> web.StreamResponse:
    writer = exchange.formatter = inference.writer
    async with aclosing(model.infer(inference.inputs, exchange.request_id)) as responses:
        if writer.streams:
            async for response in responses:
                await exchange.respond(response, writer)
            return await exchange.finish()
        whole = [response async for response in responses]
    if len(whole) != 1:
        raise GenerationFailed(f"the model gave {len(whole)} responses where one was expected")
    await exchange.respond(whole[0], writer)
    return await exchange.finish()


@asynccontextmanager
async def _within(seconds: float) -> AsyncIterator[None]:
    """Raises GenerationTimeout."""
    try:
        async with asyncio.timeout(seconds) as deadline:
            yield
    except TimeoutError:
        if not deadline.expired():  # the backend's own
            raise
        raise GenerationTimeout(f"the answer took longer than the request's `timeout` of {seconds} seconds") from None
