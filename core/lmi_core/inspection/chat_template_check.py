"""The check that a chat template is valid Jinja; otherwise every chat would fail."""

from collections.abc import Iterator

from lmi_core.errors import ConfigurationError
from lmi_core.forks.forked_function import CallEndedError, CallTooCostlyError
from lmi_core.generation.chat import Chat
from lmi_core.texts.huggingface_tokenizer import HuggingFaceTokenizer

MESSAGES = [{"role": "user", "content": "Hello"}]


def check_template(model: str, template: str | None, tokenizer: object) -> None:
    """Raise ConfigurationError if the effective template fails or takes too long."""
    if not isinstance(tokenizer, HuggingFaceTokenizer):
        return
    template = template or tokenizer.chat_template(with_tools=False)
    for fault in () if template is None else wrong_template(f"model {model}: the chat template", template, tokenizer):
        raise ConfigurationError(fault)


def wrong_template(what: str, template: str, tokenizer: HuggingFaceTokenizer) -> Iterator[str]:
    """Yield the fault of a chat template that is not Jinja, or takes too long; templates may refuse a chat."""
    from jinja2 import TemplateSyntaxError

    try:
        tokenizer.write_chat(Chat(MESSAGES), template)
    except TemplateSyntaxError as error:
        yield f"{what} is not Jinja: line {error.lineno}: {error.message}"
    except (CallTooCostlyError, CallEndedError) as error:
        yield f"{what} cannot be used: for one short message {error}"
    except Exception:  # it may require a system message, or variables from requests
        return
