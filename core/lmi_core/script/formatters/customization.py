"""The model's own code in one call."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from multidict import CIMultiDict

from lmi_core.backend import Backend
from lmi_core.calls.call import Call
from lmi_core.configuration.properties import RequestProperties
from lmi_core.errors import AdapterNotFound, InvalidPayload
from lmi_core.formatter import OutputFormatter
from lmi_core.generation.embedding_request import EmbeddingRequest
from lmi_core.generation.request import GenerationRequest
from lmi_core.payloads.plain_text import CONTENT_TYPE
from lmi_core.script.formatters.input_formatters import RequestWriter, format_input
from lmi_core.script.formatters.model_code import ChosenFormatters, ModelCode
from lmi_core.script.formatters.output_formatters import FormatterFunction, custom_formatter
from lmi_core.script.formatters.request_io import CallContext, RequestInput
from lmi_core.script.tracebacks import formatter_failure

R = TypeVar("R", GenerationRequest, EmbeddingRequest)


@dataclass
class Customization:
    """The formatters selected for a call, and the input formatter's result for the output formatter."""

    formatters: ChosenFormatters
    tokenizer: Any
    configs: Any
    options: RequestProperties
    request_id: str
    adapter: str | None = None  # None if the prompts have different ones
    adapters: tuple[str | None, ...] = ()  # the backend's adapters: none, one for all prompts, or one for each
    request_input: RequestInput | None = None
    model: str = ""

    async def read(self, call: Call, as_payload: RequestWriter) -> Call:
        """Return the call as rewritten by the input formatter. Raise FormatterFailed if that raises.

        `as_payload` serializes a request that the formatter returned as an object.
        """
        if self.formatters.input is None:
            return call
        arguments = {
            "tokenizer": getattr(self.tokenizer, "pretrained", self.tokenizer),
            "configs": self.configs,
            "properties": vars(self.configs),
            "request_id": self.request_id,
        }
        body, self.request_input = await format_input(
            self.formatters.input, call, arguments, as_payload, self.options.own_code_timeout
        )
        headers = CIMultiDict(call.headers)
        headers[CONTENT_TYPE] = "application/json"
        return replace(call, body=body, headers=headers)

    def assign(self, requests: tuple[R, ...]) -> tuple[R, ...]:
        """Return each request with its adapter. Raise InvalidPayload if their numbers differ."""
        if not self.adapters:
            return requests
        count = len(requests)
        adapters = self.adapters * count if len(self.adapters) == 1 else self.adapters
        if len(adapters) != count:
            raise InvalidPayload(
                f"`adapters` must name one adapter, or one for each of the prompts ({count}). Given: {len(adapters)}"
            )
        return tuple(replace(request, adapter=name) for request, name in zip(requests, adapters, strict=True))

    def formatter(self, base: OutputFormatter) -> OutputFormatter:
        """Return the model's own output formatter around `base`, or `base` if the model has none."""
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
                self.options.own_code_timeout,
                self.model,
            )
            return custom_formatter(output, base, context)
        try:
            return output()
        except (Exception, SystemExit) as error:  # a user's class may raise anything
            formatter, directory = f"output formatter {output.__name__}", Path(inspect.getfile(output)).parent
            raise formatter_failure(formatter, error, directory, output.__module__, self.request_id) from error


def common_adapter(adapters: Sequence[str | None]) -> str | None:
    """Return the adapter common to all prompts, or None."""
    return adapters[0] if len(set(adapters)) == 1 else None


def check_adapter(adapter: str, code: ModelCode, backend: Backend[Any]) -> None:
    """Raise AdapterNotFound unless requests can select that adapter now."""
    known = code.adapters.keys() | code.adapters_with_weights | set(backend.adapters)
    if adapter not in known:
        raise AdapterNotFound.of(adapter, known)
    if adapter in code.adapters_with_weights and adapter not in backend.adapters:
        raise AdapterNotFound(f"adapter `{adapter}` has weights, but the {backend.name} backend has not loaded them")
