"""A request of this process, which takes the same path as HTTP requests."""

import asyncio
import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import orjson

from lmi_core.errors import InvalidPayload, LmiError, ModelNotFound
from lmi_core.formatter import OutputFormatter
from lmi_core.generation.output import GenerationOutput
from lmi_core.handler import Call, Generation
from lmi_core.script.function.protocol import Chunk, Head
from lmi_core.served_model import ServedModel
from lmi_handlers.base.model_exchange import ModelExchange
from lmi_handlers.base.openai_handler import OpenAiHandler
from lmi_handlers.chat.generation import ChatForm, chat_generation, read_chat
from lmi_handlers.chat.openai_formatters import OpenAiChatFormatter, OpenAiChatStreamFormatter
from lmi_handlers.chat.request import ChatRequest
from lmi_handlers.fields.own_parameters import take_own, with_own
from lmi_handlers.lmi.handler import LmiHandler

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
        payload, ignored = read_chat(given, model)
        if ignored:
            raise InvalidPayload(f"unknown fields of a chat: {', '.join(f'`{name}`' for name in ignored)}")
        call = payload.with_id(call)
        form = ChatForm(OpenAiChatStreamFormatter if payload.stream else OpenAiChatFormatter, details=True)
        generation = chat_generation(payload, call, model, form)
        self.base: OutputFormatter = generation.formatter
        return with_own(replace(generation, strict=True), own)


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

    async def relay(self, reply: Head | Chunk) -> None:
        raise ModelNotFound("the model has no engine: its model function answers requests: use `lmi serve`")

    async def finish(self) -> None:
        """Do nothing: the last step has been written."""
