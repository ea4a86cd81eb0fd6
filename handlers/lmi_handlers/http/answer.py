"""The path of one request, from received to sent bytes."""

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, nullcontext
from functools import partial
from typing import Any, Protocol, TypeVar

from aiohttp import web

from lmi_core.admission.admission import Ticket, current_key
from lmi_core.admission.time_limits import within
from lmi_core.configuration.host_patterns import ANY, Host
from lmi_core.embedding_backend import require_generation
from lmi_core.embedding_call import EmbeddingCall
from lmi_core.errors import GenerationFailed, InvalidParameter, InvalidPayload, LmiError
from lmi_core.formatter import check_sequences, drop_unused_log_probs
from lmi_core.generation.output import GenerationOutput
from lmi_core.generation.request import ValidRequest
from lmi_core.handler import Answer, Call, Generation, Handler, Route, RouteAnswer
from lmi_core.host.off_loop import LONG_TEXT, current_client, run_off_loop
from lmi_core.inference import Inference
from lmi_core.payloads.payload import quote
from lmi_core.registry.dispatcher import Dispatcher
from lmi_core.script.formatters.customization import Customization
from lmi_core.script.formatters.request_io import RequestInput
from lmi_core.script.function.runtime import ModelFunction
from lmi_core.script.tracebacks import place_in
from lmi_core.serving.model import Model
from lmi_core.serving.validation import drop_all_unknown, validate_all
from lmi_handlers.access.control import AccessControl, Caller, Permit
from lmi_handlers.base.adapter_names import check_registered, take_adapters, with_adapter_attribute
from lmi_handlers.base.model_exchange import ModelExchange
from lmi_handlers.http.exchange import Exchange
from lmi_handlers.http.named_content import named_content
from lmi_handlers.http.origins.cross_origin import is_admitted
from lmi_handlers.http.origins.same_origin import refuse_foreign_pages
from lmi_handlers.telemetry.request_end import RequestEnd

logger = logging.getLogger(__name__)

R = TypeVar("R")

PREDICT_TIMEOUT, REQUEST_TIMEOUT = "option.predict_timeout=", "the request's `timeout` of "
INTERNAL = "internal error: see the server's log for this request's id"
OWN = "lmi_handlers."  # prefix of the modules of built-in dialects
VALUE_OF = re.compile(r"`(\w+)`(?= cannot be used: | must )")  # begins an error message about a single parameter
Parsed = Generation | Inference | EmbeddingCall | Answer
ACCESS = web.AppKey("access", AccessControl)
ANY_HOST = Host(ANY, None)
PARSED = "a Generation, an Inference, an EmbeddingCall or an Answer"


class Answering:
    """A route, and the handler that answers its requests; None until `load` has set both at the first request."""

    def __init__(
        self, route: Route, handler: Handler | None = None, load: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        self.route, self.handler, self.load = route, handler, load


Form = tuple[str, str]  # a method and a path

DISPATCHER = web.AppKey("dispatcher", Dispatcher)
CANDIDATES = web.AppKey("candidates", dict[Form, list[Answering]])  # in the order in which they are considered


async def answer(form: Form, request: web.Request) -> web.StreamResponse:
    """Answer a request and return the response, already sent. Failures are answered in the dialect's error format."""
    dispatcher, candidates = request.app[DISPATCHER], request.app[CANDIDATES][form]
    answering = candidates[0] if candidates[0].route.media_type is None else _accepted(candidates, request)
    if answering.load is not None and answering.handler is None:
        await answering.load()
    handler, route = answering.handler, answering.route
    assert handler is not None, "`load` sets it"
    path = request.rel_url.raw_path  # still percent-encoded, so that clients cannot write line breaks to the log
    exchange = Exchange(handler, route, request)
    ending = RequestEnd(dispatcher, exchange, path, counts=route.answer is None, is_polled=route.is_polled)
    try:
        try:
            permit = _check_access(request, route, dispatcher)
            exchange.client, exchange.key = permit.client, permit.key_holder
            current_client.set(permit.client)
            current_key.set(permit.sharing_key)
            if route.answer is None:
                exchange.usage = request.app[ACCESS].counted(permit)  # before it is counted, for a refusal's headers
                with exchange.usage:
                    response = await model_response(dispatcher, exchange)
            else:
                response = await _answer_route(dispatcher, exchange, route.answer)
        except LmiError as error:
            ending.note_error(error)
            response = await exchange.fail(error)
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception as error:
            logger.exception("request %s failed", exchange.request_id)
            unexpected = LmiError(_describe(handler, error) or INTERNAL)
            ending.note_error(unexpected)
            response = await exchange.fail(unexpected)
    except (ConnectionError, asyncio.CancelledError):
        ending.note_disconnect()
        raise asyncio.CancelledError from None  # aiohttp logs a ConnectionError with its traceback
    ending.note_answer(response.status)
    return response


def _accepted(candidates: list[Answering], request: web.Request) -> Answering:
    """Return the first route that has no media type, or one that the client's `Accept` includes."""
    accept = request.headers.get("Accept", "")
    items = [[part.strip().lower() for part in item.split(";")] for item in accept.split(",")]
    named = {media_type for media_type, *parameters in items if not {"q=0", "q=0.0"} & set(parameters)}
    accepted = (each for each in candidates if each.route.media_type in (None, *named))
    return next(accepted, candidates[0])


def _check_access(request: web.Request, route: Route, dispatcher: Dispatcher) -> Permit:
    """Return the permission to use a route. Raise Unauthorized or Forbidden."""
    control = request.app[ACCESS]
    permit = control.check(route, Caller(request.remote or "", request.headers), request.match_info.get("model"))
    if route.refuses_foreign_pages and not _is_for_the_page(route, control, request):
        any_host = (ANY_HOST,) if control.options.multi_model else ()
        refuse_foreign_pages(request, [*dispatcher.registry.limits.allowed_hosts, *any_host], proven=permit.is_proven)
    return permit


def _is_for_the_page(route: Route, control: AccessControl, request: web.Request) -> bool:
    """Return whether the request comes from a page that the operator has admitted to client routes."""
    rules = control.cross_origin
    return rules is not None and route.is_for_clients and is_admitted(rules, request)


async def _answer_route(dispatcher: Dispatcher, exchange: Exchange, describe: RouteAnswer) -> web.StreamResponse:
    """Send the answer of a route without a model."""
    request = exchange.request
    exchange.reach = request.app[ACCESS].reach(Caller(request.remote or "", request.headers))
    found = await describe(await _read(exchange, dispatcher.registry.limits), dispatcher)
    if not isinstance(found, Answer):
        raise _wrong_return(exchange.handler, f"the `answer` of {request.path} must return an Answer", found)
    return await exchange.send(found)


async def model_response(dispatcher: Dispatcher, exchange: ModelExchange[R]) -> R:
    """Send the model's response, and return it; comments number its steps as in docs/explanation/architecture.md."""
    while True:
        model = exchange.model = await _find_model(dispatcher, exchange)
        exchange.record.model = model.name
        if model not in dispatcher.registry.gaps:
            break
        exchange.record.wait()
        bridged = await dispatcher.bridge(model)
        exchange.record.proceed()
        if not bridged:
            break
    async with AsyncExitStack() as held:
        with model.usage.call():  # from here on, the model cannot be unloaded
            if not exchange.is_received:
                dispatcher.check_place(model)  # refuse before reading the body; a slow body must not take a place
            call = exchange.handler.receive(await exchange.call(model.server.max_request_size), model)
            ticket = held.enter_context(dispatcher.admit(model))  # 1; this counts the call, too
        if not model.ready:
            exchange.record.wait()
            await dispatcher.wake(model)
            exchange.record.proceed()
        if model.function is not None:
            held.enter_context(model.statistics.measure(1))
            await _call_function(exchange, model.function, call)
            return await exchange.finish()
        await held.enter_async_context(_prediction_time(model))
        parsed, customization = await _parse(exchange, model, call)
        if isinstance(parsed, Answer):
            return await exchange.send(parsed)
        if parsed.timeout is not None:
            await held.enter_async_context(within(parsed.timeout, REQUEST_TIMEOUT))
        if isinstance(parsed, Inference):
            await _infer(exchange, model, parsed, customization)
        elif isinstance(parsed, EmbeddingCall):
            await _embed(exchange, model, parsed, customization)
        else:
            await _generate(exchange, model, parsed, customization, ticket)
        return await exchange.finish()


async def _parse(exchange: ModelExchange[R], model: Model, call: Call) -> tuple[Parsed, Customization]:
    """Return the parsed call, and the custom code for its answer."""
    if len(call.body) > LONG_TEXT:
        await _parse_json(call, model.server)
    handler, backend = exchange.handler, model.backend
    if not (backend.generates or handler.reads_embeddings):
        require_generation(backend, model.name)

    def read() -> tuple[Call, Customization, Parsed | None]:
        """Return the call without adapter names, the custom code and, without an input formatter, the parsed call."""
        named, adapters = take_adapters(handler.name_adapters(call, model))
        customization = model.customize(adapters, named.request_id)
        exchange.record.adapter = customization.adapter or ""
        return named, customization, None if customization.formatters.input else handler.parse(named, model)  # 3

    call, customization, parsed = await run_off_loop(len(call.body), read)
    if parsed is None:
        call = await customization.read(call, request_payload)  # 2
        parsed = await run_off_loop(len(call.body), partial(handler.parse, call, model))  # 3
    if not isinstance(parsed, Parsed):
        raise _wrong_return(handler, f"`parse` must return {PARSED}", parsed)
    return parsed, customization


def _describe(handler: Handler, error: Exception) -> str:
    """Return a sentence about an exception in a plugin's handler; "" if its code was not involved."""
    author = type(handler)
    place = "" if author.__module__.startswith(OWN) else place_in(error, author.__module__)
    return place and f"the dialect {handler.name} ({author.__name__}) raised {type(error).__name__}: {error}{place}"


def _wrong_return(handler: Handler, wanted: str, found: object) -> LmiError:
    return LmiError(f"the dialect {handler.name} ({type(handler).__name__}): {wanted}. Given: {type(found).__name__}")


async def _generate(
    exchange: ModelExchange[R], model: Model, generation: Generation, customization: Customization, ticket: Ticket
) -> None:
    if generation.request_id is not None:
        exchange.request_id = generation.request_id
    exchange.answer_headers = generation.headers
    formatter = exchange.formatter = customization.formatter(generation.formatter)
    exchange.usage.extend(generation.requests)
    ticket.extend(generation.requests)
    requests = drop_unused_log_probs(formatter, await _validate(exchange, model, generation, customization))
    if model.server.log_prompts:
        exchange.record.prompts = [request.prompt for request in requests]
    output = GenerationOutput(requests)
    model.metrics.begin(exchange.record, output)
    try:
        async with (
            exchange.kept_alive(formatter, model.options.sse_keep_alive_interval),
            aclosing(model.generate(requests, exchange.request_id, exchange.record, exchange.client)) as steps,  # 5
        ):
            async for step in steps:
                output.add(step)  # 6
                await exchange.write(output, formatter)  # 7, 8
    except InvalidParameter as error:
        raise _with_client_name(error, generation.requests[0].names) from None
    finally:
        exchange.record.count(output)


async def _validate(
    exchange: ModelExchange[Any], model: Model, generation: Generation, customization: Customization
) -> list[ValidRequest]:
    if generation.ignored:
        exchange.ignore(model, generation.ignored)  # set first, so that error answers list them too
    generation = await drop_all_unknown(generation, model.backend, strict=model.options.strict_parameters)
    if generation.ignored:
        exchange.ignore(model, generation.ignored)
    assigned = customization.assign(generation.requests)
    requests = await validate_all(assigned, model.backend, exchange.request_id, exchange.key)  # 4
    if generation.formatter.one_sequence:
        check_sequences(generation.formatter, requests)
    return requests


async def validate_call(dispatcher: Dispatcher, exchange: ModelExchange[Any], model: Model) -> None:
    """Parse and validate a call as `model_response` does, and generate nothing. Raise LmiError if it is invalid."""
    with model.usage.call():
        await dispatcher.wake(model)
        call = exchange.handler.receive(await exchange.call(model.server.max_request_size), model)
        async with _prediction_time(model):
            parsed, customization = await _parse(exchange, model, call)
            if isinstance(parsed, Generation):
                await _validate(exchange, model, parsed, customization)


def _prediction_time(model: Model) -> AbstractAsyncContextManager[None]:
    """Limit the time of a call, if the model's options do."""
    seconds = model.options.predict_timeout
    return nullcontext() if seconds is None else within(seconds, PREDICT_TIMEOUT)


def _with_client_name(error: InvalidParameter, names: Mapping[str, str]) -> InvalidParameter:
    """Return an engine's error with the client's name of the parameter at its start."""
    found = VALUE_OF.match(error.message)
    field = names.get(found[1]) if found else None
    if found is None or not field or type(error) is not InvalidParameter:
        return error
    return InvalidParameter(f"`{field}`{error.message[found.end() :]}")


async def _find_model(dispatcher: Dispatcher, exchange: ModelExchange[R]) -> Model:
    handler, registry = exchange.handler, dispatcher.registry
    only = registry.only_model
    name = exchange.model_name(None if registry.has_had_several else only)
    if name is None and (only is None or only.name in registry.with_versions):
        name = _text(handler.model_name_in_body(await _read(exchange, dispatcher.registry.limits)))
        name = name if name is None else handler.served_name(name, dispatcher)
        if only is not None:
            return dispatcher.version_asked(name)
        if handler.adapters_are_models:
            return dispatcher.find_with_adapters(name)
    model = only if name is None and only is not None else dispatcher.find(name)
    version = exchange.model_version() if registry.with_versions else None
    return model if version is None else registry.version_of(model, version)


def _text(name: object) -> str | None:
    """Return an unchecked name from a body as text. Raise InvalidPayload if it is not text."""
    if name is None or isinstance(name, str):
        return name
    raise InvalidPayload(f"the name of the model must be a string. Given: {quote(name)}")


class BodyLimits(Protocol):
    """The limits of bodies, of a model or of a server."""

    @property
    def max_request_size(self) -> int: ...

    @property
    def max_request_members(self) -> int: ...


async def _read(exchange: ModelExchange[R], limits: BodyLimits) -> Call:
    """Return the call, with its JSON already parsed if that takes long."""
    call = await exchange.call(limits.max_request_size)
    if len(call.body) > LONG_TEXT:
        await _parse_json(call, limits)
    return call


async def _parse_json(call: Call, limits: BodyLimits) -> None:
    """Parse a long body beside the event loop; others are parsed when they are needed."""
    await run_off_loop(len(call.body), partial(call.parse_json, limits.max_request_members))


async def _call_function(exchange: ModelExchange[R], function: ModelFunction, call: Call) -> None:
    """Relay the answer of the model function, called with the request's contents by name."""
    content, record = await named_content(call), exchange.record
    check_registered(content, function.adapters)
    record.wait()
    replies_of = function.answer(with_adapter_attribute(call), content, exchange.client, partial(record.submit, ()))
    async with aclosing(replies_of) as replies:
        async for reply in replies:
            await exchange.relay(reply)
    record.ended = time.perf_counter()


async def _infer(exchange: ModelExchange[R], model: Model, inference: Inference, customization: Customization) -> None:
    if customization.adapters:
        raise InvalidParameter("a request with tensors cannot name one of the model's `adapters`")
    if inference.ignored:
        exchange.ignore(model, inference.ignored)
    writer, record = inference.writer, exchange.record
    exchange.formatter = writer
    async with aclosing(model.infer(inference.inputs, exchange.request_id, record, exchange.client)) as responses:
        if writer.streams:
            async with exchange.kept_alive(writer, model.options.sse_keep_alive_interval):
                async for response in responses:
                    await exchange.respond(response, writer)
            record.ended = time.perf_counter()
            return
        whole = [response async for response in responses]
    record.ended = time.perf_counter()
    if len(whole) != 1:
        raise GenerationFailed(f"the model returned {len(whole)} responses instead of one")
    await exchange.respond(whole[0], writer)


async def _embed(exchange: ModelExchange[R], model: Model, parsed: EmbeddingCall, customization: Customization) -> None:
    if parsed.request_id is not None:
        exchange.request_id = parsed.request_id
    exchange.answer_headers = parsed.headers
    if parsed.ignored:
        exchange.ignore(model, parsed.ignored)
    if customization.adapter is not None and None in customization.adapters:
        raise InvalidParameter(
            f"adapter `{customization.adapter}` has only code for text answers, and no weights: it does not change "
            f"embeddings"
        )
    requests = await model.validate_embeddings(customization.assign(parsed.requests))
    vectors = [b""] * len(requests)
    async with aclosing(model.embed(requests, exchange.request_id, exchange.record, exchange.client)) as found:
        async for index, vector in found:
            vectors[index] = parsed.writer.vector(vector)
            await asyncio.sleep(0)  # there may be many at once
    exchange.record.ended = time.perf_counter()
    body = parsed.writer.whole(requests, vectors)
    await exchange.answer(Answer(200, parsed.writer.content_type, body, headers=parsed.writer.headers))


def request_payload(request: RequestInput) -> dict[str, Any]:
    """Return the request body in LMI's schema for the object."""
    parameters = dict(request.parameters)
    payload: dict[str, Any] = {"inputs": getattr(request, "input_text", None)}
    if "stream" in parameters:
        payload["stream"] = parameters.pop("stream")
    return payload | {"parameters": parameters}
