import logging

from djl_python.output_formatter import output_formatter

logger = logging.getLogger(__name__)


@output_formatter
def shout(response):
    """Return any of vLLM's responses with its text in upper case."""
    if hasattr(response, "choices") and response.choices:
        choice = response.choices[0]
        if hasattr(choice, "delta"):
            if getattr(choice.delta, "content", None):
                choice.delta.content = choice.delta.content.upper()
        elif hasattr(choice, "message"):
            choice.message.content = choice.message.content.upper()
        elif hasattr(choice, "text"):
            choice.text = choice.text.upper()
    response.checked = True
    return response
