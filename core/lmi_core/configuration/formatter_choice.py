"""Resolution of `output_formatter`, `tgi_compat` and the batching mode into formatter names."""

from dataclasses import dataclass

from lmi_core.configuration.properties import RequestProperties
from lmi_core.errors import ConfigurationError

TGI_FORMS = {"json": "tgi_json", "jsonlines": "tgi_jsonlines", "sse": "tgi_sse"}
CHAT_FORMS = {"json": "lmi_chat", "jsonlines": "lmi_chat_jsonlines", "sse": "lmi_chat_sse"}


@dataclass(frozen=True, slots=True)
class FormatterNames:
    """The names of the formatters of LMI answers, whole and streamed."""

    whole: str
    stream: str
    everywhere: bool = False  # use them even where a dialect has a form of its own


def resolve(options: RequestProperties) -> FormatterNames:
    """Return a model's formatter names; a configured name applies to whole and streamed answers alike."""
    if options.dynamic_batching:
        return _dynamic(options)
    stream = options.output_formatter or ("sse" if options.tgi_compat else "jsonlines")
    whole = options.output_formatter or (stream if options.enable_streaming else "json")
    if options.tgi_compat:
        whole, stream = TGI_FORMS.get(whole, whole), TGI_FORMS.get(stream, stream)
    return FormatterNames(whole, stream)


def resolve_chat(options: RequestProperties) -> FormatterNames:
    """Return the formatter names for the LMI chat schema; a configured name replaces OpenAI's form too.

    The exception is `sse`, the framing of OpenAI's streams already.
    """
    chosen = options.output_formatter or "jsonlines"
    stream = CHAT_FORMS.get(chosen, chosen)
    whole = stream if options.output_formatter or options.enable_streaming else "lmi_chat"
    return FormatterNames(whole, stream, everywhere=options.output_formatter not in (None, "sse"))


def _dynamic(options: RequestProperties) -> FormatterNames:
    """Return the names for the dynamic-batch schema, which has one form each of whole answers and streams."""
    if options.tgi_compat:
        raise ConfigurationError(
            "option.tgi_compat=true needs rolling batch: remove it, or option.rolling_batch=disable"
        )
    if options.output_formatter in (None, "json"):
        return FormatterNames("dynamic_jsonlines" if options.enable_streaming else "dynamic_json", "dynamic_jsonlines")
    if options.output_formatter == "jsonlines":
        return FormatterNames("dynamic_jsonlines", "dynamic_jsonlines")
    if options.output_formatter == "sse":
        raise ConfigurationError("option.output_formatter=sse needs rolling batch; with dynamic batch use jsonlines")
    return FormatterNames(options.output_formatter, options.output_formatter)
