"""The output formatter of one of a function's requests."""

from pathlib import Path

from djl_python.chat_completions.chat_utils import CHAT_FORMATTERS
from djl_python.properties_manager.properties import Properties
from djl_python.services.model_engine import ModelEngine
from djl_python.services.parsed_batch import BatchItem
from lmi_core.chat_formatter import ChatAnswer
from lmi_core.formatter import AnswerSchema, OutputFormatter
from lmi_core.script.formatters.output_formatters import custom_formatter, formatter_function
from lmi_core.script.formatters.request_io import CallContext
from lmi_core.serving.formatter_choice import resolve


def new_formatter(engine: ModelEngine, item: BatchItem, configs: Properties) -> OutputFormatter:
    """Create the output formatter that the parameters of the first prompt, or the properties, choose.

    Raise ConfigurationError for an unknown name, or a function without a contract.
    """
    parameters = item.parameters[0]
    chosen = parameters.get("output_formatter") or configs.output_formatter
    if isinstance(chosen, str) and chosen in CHAT_FORMATTERS:
        return _chat_formatter(engine, item, CHAT_FORMATTERS[chosen])
    options = engine.options.model_copy(
        update={"rolling_batch": "auto", "output_formatter": chosen if isinstance(chosen, str) else None}
    )
    names = resolve(options, engine.plugins.formatters)
    streams = bool(parameters.get("stream")) or configs.enable_streaming not in ("", "false")
    base = engine.plugins.formatters.create(names.stream if streams else names.whole)
    if not callable(chosen):
        return base
    directory = Path(getattr(getattr(chosen, "__code__", None), "co_filename", ".")).parent
    context = CallContext(
        item.request_id,
        engine.backend.tokenizer,
        parameters.get("request_input"),
        configs.tgi_compat,
        time_limit=engine.options.own_code_timeout,
    )
    return custom_formatter(formatter_function(chosen, directory), base, context)


def _chat_formatter(engine: ModelEngine, item: BatchItem, name: str) -> OutputFormatter:
    answer = ChatAnswer(
        response_id=f"chatcmpl-{item.request_id}",
        model=engine.directory.resolve().name,
        tokenizer=engine.backend.tokenizer,
        log_probs=item.parameters[0].get("logprobs") is not None,
    )
    formatters = engine.plugins.formatters
    return formatters.create_for_chat(formatters.variant(name, AnswerSchema.CHAT), answer)
