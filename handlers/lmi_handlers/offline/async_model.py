"""A model in this process, for asynchronous programs; its requests take the same path as HTTP requests."""

import asyncio
import logging
import os
import secrets
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self, TypeVar, overload

import orjson

from lmi_core.errors import ConfigurationError, InvalidPayload, LmiError, ModelNotReady
from lmi_core.errors.did_you_mean import did_you_mean
from lmi_core.formatter import OutputFormatter, join_events
from lmi_core.generation.output import GenerationOutput
from lmi_core.handler import Call, Generation
from lmi_core.logs.logs import LOG_LEVEL_VARIABLE
from lmi_core.payloads.payload import quote
from lmi_core.payloads.tolerant_payload import field_names
from lmi_core.registry.dispatcher import Dispatcher
from lmi_core.served_model import ServedModel
from lmi_core.serving.model import Model
from lmi_handlers.base.model_exchange import ModelExchange
from lmi_handlers.base.openai_handler import OpenAiHandler, check_model
from lmi_handlers.chat.generation import ChatForm, chat_generation
from lmi_handlers.chat.openai_formatters import OpenAiChatFormatter, OpenAiChatStreamFormatter
from lmi_handlers.chat.request import ChatRequest
from lmi_handlers.cli.private_server import one_plan
from lmi_handlers.fields.openai_tolerance import take_fields, take_own, with_own
from lmi_handlers.http.answer import model_response, validate_call
from lmi_handlers.http.exchange import check_result
from lmi_handlers.lmi.handler import LmiHandler
from lmi_handlers.offline.results import ChatReply, Completion, TextPiece

Write = Callable[[GenerationOutput, OutputFormatter], None]


class Steps(OutputFormatter):
    """A formatter that writes nothing, because the steps themselves are the answer; they contain every detail."""

    name: ClassVar[str] = "steps"
    content_type = "application/octet-stream"

    def format(self, output: GenerationOutput) -> bytes:
        return b""

    def error(self, error: LmiError) -> bytes:
        return b""


class TextHandler(LmiHandler):
    """LMI's dialect, answered with the steps; unknown parameters are errors, like unknown function arguments."""

    def parse(self, call: Call, model: ServedModel) -> Generation:
        generation = super().parse(call, model)
        if not isinstance(generation, Generation):
            raise InvalidPayload(f"model `{model.name}` makes embeddings, and generates no text")
        self.base: OutputFormatter = Steps()
        return replace(generation, formatter=self.base, strict=True)


class ChatHandler(OpenAiHandler):
    """OpenAI's chats, always answered in OpenAI's form."""

    name: ClassVar[str] = "offline_chat"

    def parse(self, call: Call, model: ServedModel) -> Generation:
        given, own = take_own(call.json_object(), model, ChatRequest)
        payload, ignored = take_fields(given, ChatRequest, model.options.strict_parameters)
        if ignored:
            known = field_names(ChatRequest) | field_names(model.backend.parameters_type)
            hint = "".join(did_you_mean(name, known) for name in ignored)
            raise InvalidPayload(f"unknown fields of a chat: {', '.join(f'`{name}`' for name in ignored)}.{hint}")
        check_model(payload.model, call, model)
        _refuse_unreturned(payload)
        call = payload.identify(call)
        form = ChatForm(OpenAiChatStreamFormatter if payload.stream else OpenAiChatFormatter)
        generation = chat_generation(payload, call, model, form)
        self.base: OutputFormatter = generation.formatter
        return with_own(replace(generation, strict=True), own)


# Fields of a chat whose results neither a ChatReply nor pieces of text contain.
UNRETURNED = ("logprobs", "prompt_logprobs", "return_token_ids", "return_prompt_text", "stream_options")


def _refuse_unreturned(payload: ChatRequest) -> None:
    """Raise InvalidPayload for a field whose result cannot be returned."""
    method = "stream_chat" if payload.stream else "chat"
    if payload.n not in (None, 1):
        raise InvalidPayload(f"`n` must be 1 in `{method}`, which returns one answer. Given: {payload.n}")
    for name in UNRETURNED:
        if (value := getattr(payload, name)) is not None and value is not False:
            raise InvalidPayload(f"`{name}` must be omitted in `{method}`, whose results have no place for it")
    if payload.stream and payload.offered_tools and (payload.choice is None or payload.choice.mode != "none"):
        raise InvalidPayload(
            f"`{payload.tool_names.tools}` must be omitted in `stream_chat`, which yields only text: use `chat`, whose "
            "replies contain `tool_calls`"
        )


class OfflineExchange(ModelExchange[None]):
    """One request, whose unknown names are errors; `write` gets each step with the formatter of its dialect."""

    handler: TextHandler | ChatHandler

    def __init__(self, handler: TextHandler | ChatHandler, body: Mapping[str, Any], write: Write) -> None:
        super().__init__(handler, {}, secrets.token_hex(8))
        self._body = body
        self._write = write

    async def call(self, limit: int) -> Call:
        """Return the request as a call with a JSON body. Raise InvalidPayload for values without a JSON form."""
        try:
            body = orjson.dumps(self._body)
        except TypeError as error:
            raise InvalidPayload(f"the request cannot be written as JSON: {error}") from None
        return Call(path_parameters={}, headers={}, body=body, request_id=self.request_id)

    async def write(self, output: GenerationOutput, formatter: OutputFormatter) -> None:
        self._write(output, self.handler.base)  # the model's own formatter writes for clients only
        await asyncio.sleep(0)

    async def finish(self) -> None:
        """Do nothing: the last step has been written."""


logger = logging.getLogger(__name__)

T = TypeVar("T")

DATA = b"data: "
DONE = b"[DONE]"
NOT_STARTED = "not started: use `async with`, or await `start`"

Messages = str | Sequence[Mapping[str, Any]]  # the text of a user, or messages in OpenAI's form


class AsyncModel:
    """A model in this process, started by `async with`; engines in their own processes end with it."""

    def __init__(
        self,
        target: str | os.PathLike[str],
        plugins_directory: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> None:
        """Read a model directory, or that of a hub model. Raise ConfigurationError with every problem.

        `options` are keys of serving.properties without `option.`, such as `dtype="bf16"`.
        """
        os.environ.setdefault(LOG_LEVEL_VARIABLE, "warning")  # read by the workers
        given = tuple(
            f"option.{name}={value if isinstance(value, str) else orjson.dumps(value).decode()}"
            for name, value in options.items()
        )
        folder = None if plugins_directory is None else Path(plugins_directory)
        plan, plugins, self._warnings = one_plan(os.fspath(target), given, folder, "options of lmi.load")
        if plan.backend is None:
            raise ConfigurationError(
                f"model {plan.name}: its model function answers requests, which needs a server: use `lmi serve` or "
                "`lmi try`"
            )
        self._model = Model(plan, plugins.formatters)
        self._dispatcher = Dispatcher({plan.name: self._model})
        self._places = asyncio.Semaphore(self._model.admission.maximum)
        self._unready: str | None = NOT_STARTED

    @property
    def name(self) -> str:
        """The name under which `lmi serve` would serve the model."""
        return self._model.name

    async def start(self) -> Self:
        """Load the model. Raise ConfigurationError if it cannot be loaded."""
        for warning in self._warnings:
            logger.warning("model %s: %s", self.name, warning)
        try:
            await self._dispatcher.start()
            if not self._model.backend.generates:
                raise ConfigurationError(f"model {self.name} generates no text: use `lmi serve`")
        except BaseException:
            await self._dispatcher.stop()
            raise
        self._unready = None
        return self

    async def close(self) -> None:
        """Stop the engine and the requests in flight."""
        self._unready = "closed"
        await self._dispatcher.stop()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @overload
    async def generate(self, prompt: str, **parameters: Any) -> Completion: ...

    @overload
    async def generate(self, prompt: Sequence[str], **parameters: Any) -> list[Completion]: ...

    async def generate(self, prompt: str | Sequence[str], **parameters: Any) -> Completion | list[Completion]:
        """Return the completion of a prompt or, for several prompts, a list of completions.

        `parameters` are those of LMI's requests, such as `max_new_tokens`, and `adapters`. Several prompts are all
        validated before the first one is generated. Raise LmiError if a request fails.
        """
        if parameters.get("stream"):
            raise InvalidPayload("`generate` returns whole completions: the method `stream` yields the text in pieces")
        if isinstance(prompt, str):
            return await self._completion(prompt, parameters)
        prompts = _prompts(prompt)
        given = [*zip(prompts, _of_each(parameters, len(prompts)), strict=True)]
        await self._validate(given)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._completion(*each)) for each in given]
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return [task.result() for task in tasks]

    def stream(self, prompt: str, **parameters: Any) -> AsyncGenerator[TextPiece, None]:
        """Yield the text piece by piece; closing the generator aborts the request.

        Raise LmiError if the request fails.
        """
        body = _text_body(prompt, parameters)
        return self._items(TextHandler(), body, lambda output, _: [TextPiece.of(output)])

    async def chat(self, messages: Messages, **fields: Any) -> ChatReply:
        """Return the answer to a chat, given as a user's message or as messages in OpenAI's form.

        `fields` are those of OpenAI's requests, such as `max_tokens` and `tools`. Raise LmiError if the request fails.
        """
        if fields.get("stream"):
            raise InvalidPayload("`chat` returns a whole reply: the method `stream_chat` yields the text in pieces")
        body = _chat_body(messages, fields)
        written = [each async for each in self._items(ChatHandler(), body, lambda *step: [_format(*step)])]
        return ChatReply.of(orjson.loads(b"".join(written)))

    def stream_chat(self, messages: Messages, **fields: Any) -> AsyncGenerator[str, None]:
        """Yield the text of the answer to a chat piece by piece; closing the generator aborts it.

        Raise LmiError if it fails.
        """
        body = _chat_body(messages, fields) | {"stream": True}
        return self._items(ChatHandler(), body, lambda *step: _texts(_format(*step)))

    async def _validate(self, given: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        """Validate all prompts before the first one is generated. Raise LmiError with the index of an invalid one."""
        self._check_ready()
        for index, each in enumerate(given):
            exchange = OfflineExchange(TextHandler(), _text_body(*each), lambda *_: None)
            try:
                await validate_call(self._dispatcher, exchange, self._model)
            except LmiError as error:
                error.message = f"prompt[{index}]: {error.message}"
                error.args = (error.message,)
                raise
            await asyncio.sleep(0)  # the caller's event loop may have other work

    def _check_ready(self) -> None:
        if self._unready is not None:
            raise ModelNotReady(f"the model is {self._unready}")

    async def _completion(self, prompt: str, parameters: Mapping[str, Any]) -> Completion:
        body = _text_body(prompt, parameters)
        outputs = [each async for each in self._items(TextHandler(), body, lambda output, _: [output])]
        return Completion.of(outputs[-1])

    async def _items(
        self,
        handler: TextHandler | ChatHandler,
        body: Mapping[str, Any],
        convert: Callable[[GenerationOutput, OutputFormatter], Iterable[T]],
    ) -> AsyncGenerator[T, None]:
        """Yield the items of each step; closing the generator aborts the request.

        Callers get this generator itself: a loop that ends would close one inside another at the same time.
        """
        steps: asyncio.Queue[Iterable[T] | None] = asyncio.Queue()  # None: the request has ended
        exchange = OfflineExchange(handler, body, lambda *step: steps.put_nowait(convert(*step)))
        async with self._places:
            self._check_ready()
            request = asyncio.create_task(model_response(self._dispatcher, exchange))
            request.add_done_callback(lambda _: steps.put_nowait(None))
            try:
                while (step := await steps.get()) is not None:
                    for item in step:
                        yield item
                request.result()
            finally:
                request.cancel()
                await asyncio.gather(request, return_exceptions=True)


def _format(output: GenerationOutput, formatter: OutputFormatter) -> bytes:
    return join_events(check_result(formatter, formatter.format(output)))


def _texts(events: bytes) -> Iterator[str]:
    """Yield the texts in server-sent events of OpenAI's form."""
    for line in events.splitlines():
        data = line.removeprefix(DATA)
        if data and data != DONE:
            for choice in orjson.loads(data).get("choices", ()):
                if text := choice["delta"].get("content"):
                    yield text


def _prompts(given: object) -> list[str]:
    """Return several prompts as a list. Raise InvalidPayload for anything else."""
    prompts: list[Any] = list(given) if isinstance(given, Iterable) and not isinstance(given, Mapping) else [given]
    if not all(isinstance(each, str) for each in prompts):
        raise InvalidPayload(f"the prompt must be a string, or a list of strings. Given: {quote(given)}")
    return prompts


def _of_each(parameters: Mapping[str, Any], count: int) -> list[Mapping[str, Any]]:
    """Return the parameters of each prompt, which may have its own adapter. Raise InvalidPayload for another number."""
    adapters = parameters.get("adapters")
    if not isinstance(adapters, list | tuple) or len(adapters) < 2:
        return [parameters] * count
    if len(adapters) != count:
        raise InvalidPayload(
            f"`adapters` must name one adapter, or one for each of the prompts ({count}). Given: {len(adapters)}"
        )
    return [{**parameters, "adapters": name} for name in adapters]


def _text_body(prompt: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    given = dict(parameters)
    adapters = {"adapters": given.pop("adapters")} if "adapters" in given else {}
    return {"inputs": prompt, "parameters": given, **adapters}


def _chat_body(messages: Messages, fields: Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(messages, str):
        return {**fields, "messages": [{"role": "user", "content": messages}]}
    return {**fields, "messages": list(messages) if isinstance(messages, Sequence) else messages}
