"""The path of one request, from the received bytes to the sent ones."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import TypeVar

from aiohttp import web

from lmi_core.embeddings.backend import require_generation
from lmi_core.embeddings.call import EmbeddingCall
from lmi_core.errors import GenerationFailed, GenerationTimeout, InvalidParameter, LmiError
from lmi_core.formatter import check_sequences, drop_unused_log_probs
from lmi_core.generation import GenerationOutput
from lmi_core.handler import Answer, Call, Generation, Handler, Route
from lmi_core.inference import Inference
from lmi_core.request import ValidRequest
from lmi_core.script.formatters.customization import Customization
from lmi_core.script.function.runtime import ModelFunction
from lmi_core.serving.dispatcher import Dispatcher
from lmi_core.serving.model import Model
from lmi_handlers.http.adapter_names import take_adapters, with_adapter_attribute
from lmi_handlers.http.exchange import Exchange
from lmi_handlers.http.model_exchange import ModelExchange
from lmi_handlers.http.named_content import named_content
from lmi_handlers.http.same_origin import refuse_foreign_pages
from lmi_handlers.lmi.request_input import request_payload

logger = logging.getLogger(__name__)

R = TypeVar("R")


async def answer(dispatcher: Dispatcher, handler: Handler, route: Route, request: web.Request) -> web.StreamResponse:
    """Answer a request and return the response, already sent. Failures are answered in the dialect's error format."""
    begun = time.perf_counter()
    path = request.rel_url.raw_path  # still encoded, so that the log has no line breaks of a client
    exchange = Exchange(handler, route, request)
    try:
        if route.refuses_foreign_pages:
            refuse_foreign_pages(request, dispatcher.allowed_hosts)
        if route.answer is None:
            response = await model_response(dispatcher, exchange)
        else:
            call = await exchange.call(dispatcher.max_request_size)
            response = await exchange.send(await route.answer(call, dispatcher))
    except LmiError as error:
        response = await exchange.fail(error)
    except (ConnectionError, asyncio.CancelledError):
        logger.info(
            "request %s: %s ended: the client disconnected, or the server is stopping", exchange.request_id, path
        )
        raise asyncio.CancelledError from None  # aiohttp logs a ConnectionError with its traceback
    except Exception:
        logger.exception("request %s failed", exchange.request_id)
        response = await exchange.fail(LmiError("internal error: see the server's log for this request's id"))
    milliseconds = (time.perf_counter() - begun) * 1000
    logger.info("request %s: %s %d in %.0f ms", exchange.request_id, path, response.status, milliseconds)
    return response


async def model_response(dispatcher: Dispatcher, exchange: ModelExchange[R]) -> R:
    """Send the model's response, and return it; the numbers in the comments are the steps in docs/architecture.md."""
    model = exchange.model = await _asked_model(dispatcher, exchange)
    with dispatcher.admit(model):  # 1
        call = exchange.handler.receive(await exchange.call(model.server.max_request_size), model)
        if model.function is not None:
            with model.statistics.measure(1):
                return await _function_response(exchange, model.function, call)
        if not exchange.handler.reads_embeddings:
            require_generation(model.backend, model.name)
        call, customization = _customization(exchange, model, call)
        call = await customization.read(call, request_payload)  # 2
        parsed = exchange.handler.parse(call, model)  # 3
        if isinstance(parsed, Answer):
            return await exchange.send(parsed)
        async with _within(parsed.timeout):
            if isinstance(parsed, Inference):
                return await _inference_response(exchange, model, parsed, customization)
            if isinstance(parsed, EmbeddingCall):
                return await _embedding_response(exchange, model, parsed, customization)
            return await _generation_response(exchange, model, parsed, customization)


async def _generation_response(
    exchange: ModelExchange[R], model: Model, generation: Generation, customization: Customization
) -> R:
    if generation.request_id is not None:
        exchange.request_id = generation.request_id
    exchange.answer_headers = generation.headers
    formatter = exchange.formatter = customization.formatter(generation.formatter)
    requests = await _valid_requests(exchange, model, generation, customization)  # 4
    check_sequences(generation.formatter, requests)
    requests = drop_unused_log_probs(formatter, requests)
    output = GenerationOutput(requests)
    async with aclosing(model.generate(requests, exchange.request_id)) as steps:  # 5
        async for step in steps:
            output.add(step)  # 6
            await exchange.write(output, formatter)  # 7, 8
    return await exchange.finish()


async def _asked_model(dispatcher: Dispatcher, exchange: ModelExchange[R]) -> Model:
    handler, name = exchange.handler, exchange.model_name()
    if name is None and dispatcher.only_model is None:
        name = handler.model_name_in_body(await exchange.call(dispatcher.max_request_size))
        name = name if name is None else handler.served_name(name, dispatcher)
        if handler.adapters_are_models:
            return dispatcher.find_with_adapters(name)
    return dispatcher.find(name)


def _customization(exchange: ModelExchange[R], model: Model, call: Call) -> tuple[Call, Customization]:
    """Return the call without its adapters' names, and the custom code of the model and those adapters."""
    call, adapters = take_adapters(exchange.handler.name_adapters(call, model))
    return call, model.customize(adapters, call.request_id)


async def _valid_requests(
    exchange: ModelExchange[R], model: Model, generation: Generation, customization: Customization
) -> list[ValidRequest]:
    exchange.ignore(model, generation.ignored)  # set first, so that error answers list them too
    generation = model.drop_unknown(generation)
    exchange.ignore(model, generation.ignored)
    return await model.validate(customization.adapted(generation.requests), exchange.request_id)


async def _function_response(exchange: ModelExchange[R], function: ModelFunction, call: Call) -> R:
    """Return the answer of the model function, called with the request's contents by name."""
    content = await named_content(call)
    async with aclosing(function.answer(with_adapter_attribute(call), content)) as replies:
        async for reply in replies:
            await exchange.relay(reply)
    return await exchange.finish()


async def _inference_response(
    exchange: ModelExchange[R], model: Model, inference: Inference, customization: Customization
) -> R:
    if customization.adapters:
        raise InvalidParameter("a request with tensors cannot name one of the model's `adapters`")
    exchange.ignore(model, inference.ignored)
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


async def _embedding_response(
    exchange: ModelExchange[R], model: Model, parsed: EmbeddingCall, customization: Customization
) -> R:
    if parsed.request_id is not None:
        exchange.request_id = parsed.request_id
    exchange.answer_headers = parsed.headers
    exchange.ignore(model, parsed.ignored)
    if customization.adapter is not None and None in customization.adapters:
        raise InvalidParameter(
            f"adapter `{customization.adapter}` is code for answers in text, without weights: it changes no embeddings"
        )
    requests = await model.validate_embeddings(customization.adapted_embeddings(parsed.requests))
    vectors = [b""] * len(requests)
    async with aclosing(model.embed(requests, exchange.request_id)) as found:
        async for index, vector in found:
            vectors[index] = parsed.writer.vector(vector)
            await asyncio.sleep(0)  # many may be there at once
    await exchange.answer(Answer(200, parsed.writer.content_type, parsed.writer.whole(requests, vectors)))
    return await exchange.finish()


@asynccontextmanager
async def _within(seconds: float | None) -> AsyncIterator[None]:
    """Raise GenerationTimeout where the body takes longer than `seconds`; None sets no limit."""
    try:
        async with asyncio.timeout(seconds) as deadline:
            yield
    except TimeoutError:
        if not deadline.expired():  # raised by the backend
            raise
        raise GenerationTimeout(
            f"the answer was not complete within the request's `timeout` of {seconds} seconds"
        ) from None
