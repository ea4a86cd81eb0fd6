"""Resolution of `output_formatter`, `tgi_compat` and the batching mode into formatter names."""

from lmi_core.configuration.properties import RequestProperties
from lmi_core.errors import ConfigurationError
from lmi_core.formatter import AnswerSchema, FormatterNames
from lmi_core.plugins.formatters import FormatterRegistry

# Formatter names that work with every model, whichever plugin or variant writes the answers.
WHOLE = "json"
LINES = "jsonlines"
EVENTS = "sse"


def describe(options: RequestProperties) -> str:
    """Return the schema of answers in words, with the option that chooses it."""
    if options.dynamic_batching:
        return "used for dynamic batches (option.rolling_batch=disable)"
    if options.asynchronous:
        return f"used in LMI's asynchronous mode ({options.asynchronous})"
    return "LMI's with TGI's names (option.tgi_compat=true)" if options.tgi_compat else "LMI's (v0.28, the default)"


def resolve(options: RequestProperties, formatters: FormatterRegistry) -> FormatterNames:
    """Return a model's formatter names; a configured name applies to whole and streamed answers alike."""
    if options.dynamic_batching:
        return _dynamic(options, formatters)
    if options.asynchronous:
        whole, stream = options.output_formatter or WHOLE, options.output_formatter or LINES
        schema = AnswerSchema.ASYNC
        return FormatterNames(formatters.variant(whole, schema), formatters.variant(stream, schema))
    stream = options.output_formatter or (EVENTS if options.tgi_compat else LINES)
    whole = options.output_formatter or (stream if options.enable_streaming else WHOLE)
    if options.tgi_compat:
        whole, stream = (formatters.variant(name, AnswerSchema.TGI_COMPAT) for name in (whole, stream))
    return FormatterNames(whole, stream)


def resolve_chat(options: RequestProperties, formatters: FormatterRegistry) -> FormatterNames:
    """Return the formatter names for the LMI chat schema; a configured name replaces OpenAI's form too.

    The exception is `sse`, which is already the framing of OpenAI's streams.
    """
    stream = options.output_formatter or LINES
    whole = stream if options.output_formatter or options.enable_streaming else WHOLE
    return FormatterNames(
        formatters.variant(whole, AnswerSchema.CHAT),
        formatters.variant(stream, AnswerSchema.CHAT),
        everywhere=options.output_formatter not in (None, EVENTS),
    )


def _dynamic(options: RequestProperties, formatters: FormatterRegistry) -> FormatterNames:
    """Return the names for the dynamic-batch schema, which has one form for whole answers and one for streams."""
    if options.tgi_compat:
        raise ConfigurationError(
            "option.tgi_compat=true needs rolling batch: remove it, or option.rolling_batch=disable"
        )
    chosen = options.output_formatter or WHOLE
    if chosen == EVENTS:
        raise ConfigurationError("option.output_formatter=sse needs rolling batch; with dynamic batch use jsonlines")
    stream = LINES if chosen == WHOLE else chosen
    whole = stream if options.enable_streaming else chosen
    return FormatterNames(
        formatters.variant(whole, AnswerSchema.DYNAMIC_BATCH), formatters.variant(stream, AnswerSchema.DYNAMIC_BATCH)
    )
