"""The output formatter of one of a function's requests."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from djl_python.chat_completions.chat_utils import CHAT_FORMATTERS
from djl_python.services.model_engine import ModelEngine
from lmi_core.chat_formatter import ChatAnswer
from lmi_core.formatter import AnswerSchema, FormatterNames, OutputFormatter
from lmi_core.script.formatters.output_formatters import custom_formatter, formatter_function
from lmi_core.script.formatters.request_io import CallContext, RequestInput
from lmi_core.serving.formatter_choice import resolve


@dataclass(frozen=True)
class Writing:
    """The form of an answer: a formatter by name, or a user function."""

    request_id: str
    stream: bool = False
    output_formatter: str | Callable[..., Any] | None = None
    log_probs: bool = False
    request_input: RequestInput | None = None
    tgi_compat: bool = False


def new_formatter(engine: ModelEngine, writing: Writing) -> OutputFormatter:
    """Create the output formatter. Raise ConfigurationError for an unknown name, or a function without a contract."""
    chosen = writing.output_formatter
    names = _names(engine, chosen if isinstance(chosen, str) else None)
    name = names.stream if writing.stream else names.whole
    if isinstance(chosen, str) and chosen in CHAT_FORMATTERS:
        return _chat_formatter(engine, writing, CHAT_FORMATTERS[chosen])
    base = engine.plugins.formatters.create(name)
    if not callable(chosen):
        return base
    directory = Path(getattr(getattr(chosen, "__code__", None), "co_filename", ".")).parent
    context = CallContext(
        writing.request_id,
        engine.backend.tokenizer,
        writing.request_input,
        writing.tgi_compat,
        time_limit=engine.options.own_code_timeout,
    )
    return custom_formatter(formatter_function(chosen, directory), base, context)


def _names(engine: ModelEngine, chosen: str | None) -> FormatterNames:
    options = engine.options.model_copy(update={"rolling_batch": "auto", "output_formatter": chosen})
    return resolve(options, engine.plugins.formatters)


def _chat_formatter(engine: ModelEngine, writing: Writing, name: str) -> OutputFormatter:
    answer = ChatAnswer(
        response_id=f"chatcmpl-{writing.request_id}",
        model=engine.directory.resolve().name,
        tokenizer=engine.backend.tokenizer,
        log_probs=writing.log_probs,
    )
    formatters = engine.plugins.formatters
    return formatters.create_for_chat(formatters.variant(name, AnswerSchema.CHAT), answer)
