"""One call's way through the model's own code."""

import logging
from dataclasses import dataclass, replace
from typing import Any

import orjson
from multidict import CIMultiDict

from lmi_core.backend import Backend
from lmi_core.calls.call import Call
from lmi_core.configuration.properties import HandlerProperties
from lmi_core.errors import AdapterNotFound, FormatterFailed, InvalidPayload
from lmi_core.formatter import OutputFormatter
from lmi_core.payloads.payload import may_have, shown
from lmi_core.payloads.plain_text import CONTENT_TYPE, is_plain_text
from lmi_core.request import GenerationRequest
from lmi_core.script.formatters.adapter_names import agreed_adapters, named_adapters
from lmi_core.script.formatters.call_context import CallContext
from lmi_core.script.formatters.input_formatters import format_input
from lmi_core.script.formatters.model_code import ChosenFormatters, ModelCode
from lmi_core.script.formatters.output_formatters import FormatterFunction, custom_formatter
from lmi_core.script.formatters.request_io import RequestInput
from lmi_core.serving.model_adapters import no_such_adapter

logger = logging.getLogger(__name__)


@dataclass
class Customization:
    """The formatters that were chosen for a call, and what the input formatter handed on to the output formatter."""

    formatters: ChosenFormatters
    tokenizer: Any
    configs: Any
    options: HandlerProperties
    request_id: str
    adapter: str | None = None  # None also where the prompts have different ones
    adapters: tuple[str | None, ...] = ()  # the backend's: none, one for all prompts, or one for each
    request_input: RequestInput | None = None
    model: str = ""

    async def read(self, call: Call) -> Call:
        """The call as the input formatter makes it. Raises FormatterFailed."""
        if self.formatters.input is None:
            return call
        arguments = {
            "tokenizer": getattr(self.tokenizer, "pretrained", self.tokenizer),
            "configs": self.configs,
            "properties": vars(self.configs),
            "request_id": self.request_id,
        }
        formatted = await format_input(self.formatters.input, call, arguments, self.options.predict_timeout)
        self.request_input = formatted.request_input
        headers = CIMultiDict(call.headers)
        headers[CONTENT_TYPE] = "application/json"
        return replace(call, body=formatted.body, headers=headers)

    def adapted(self, requests: tuple[GenerationRequest, ...]) -> tuple[GenerationRequest, ...]:
        """Each with its adapter. Raises InvalidPayload where there are not as many of one as of the other."""
        if not self.adapters:
            return requests
        adapters = self.adapters * len(requests) if len(self.adapters) == 1 else self.adapters
        if len(adapters) != len(requests):
            raise InvalidPayload(
                f"`adapters` must name one adapter, or as many as there are prompts, {len(requests)}."
                f" Given: {len(adapters)}"
            )
        return tuple(replace(request, adapter=name) for request, name in zip(requests, adapters, strict=True))

    def formatter(self, base: OutputFormatter) -> OutputFormatter:
        """What writes the answer in place of `base`; `base`, where the model has no output formatter of its own."""
        output = self.formatters.output
        if output is None:
            return base
        if isinstance(output, FormatterFunction):
            context = CallContext(
                self.request_id,
                self.tokenizer,
                self.request_input,
                self.options.tgi_compat,
                self.adapter,
                self.options.predict_timeout,
                self.model,
            )
            return custom_formatter(output, base, context)
        try:
            return output()
        except (Exception, SystemExit) as error:  # whatever a class of the user's raises
            logger.exception("request %s: the output formatter %s raised", self.request_id, output.__name__)
            raise FormatterFailed(
                f"the output formatter {output.__name__} raised {type(error).__name__}: {error}"
            ) from error


def take_adapters(call: Call) -> tuple[Call, tuple[str | None, ...]]:
    """The adapters that a call names in any place that LMI has for it, and the call without the body's `adapters`.

    None: the model as it is; one: for all prompts; several: one for each. Raises InvalidPayload where places differ.
    """
    elsewhere = named_adapters(call)
    call, in_body = _take_from_body(call)
    return call, agreed_adapters(in_body, elsewhere)


def _take_from_body(call: Call) -> tuple[Call, tuple[str | None, ...]]:
    if not may_have(call.body, "adapters") or is_plain_text(call.headers):
        return call, ()
    try:
        payload = orjson.loads(call.body)
    except orjson.JSONDecodeError:
        return call, ()  # for the dialect to complain of
    if not isinstance(payload, dict) or "adapters" not in payload:
        return call, ()
    names = _names(payload.pop("adapters"))
    try:
        return replace(call, body=orjson.dumps(payload)), names
    except orjson.JSONEncodeError as error:  # it reads deeper nesting than it writes
        raise InvalidPayload(f"the body cannot be taken: {error}") from None


def common_adapter(adapters: tuple[str | None, ...]) -> str | None:
    """That of all prompts, if there is one."""
    return adapters[0] if len(set(adapters)) == 1 else None


def check_adapter(adapter: str, code: ModelCode, backend: Backend[Any]) -> None:
    """Raises AdapterNotFound."""
    known = code.adapters.keys() | code.adapters_with_weights | set(backend.adapters)
    if adapter not in known:
        raise no_such_adapter(adapter, known)
    if adapter in code.adapters_with_weights and adapter not in backend.adapters:
        raise AdapterNotFound(f"adapter `{adapter}` has weights, which the {backend.name} backend has not loaded")


def _names(adapters: object) -> tuple[str | None, ...]:
    if adapters is None:
        return ()
    names: list[Any] = adapters if isinstance(adapters, list) else [adapters]
    if not all(name is None or isinstance(name, str) for name in names):
        raise InvalidPayload(
            f"`adapters` must be an adapter's name, or a list with one for each prompt. Given: {shown(adapters)}"
        )
    return tuple(name or None for name in names)
