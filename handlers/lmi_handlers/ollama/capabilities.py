"""What a served model can do, in Ollama's words."""

from lmi_core.calls.served_model import ServedModel
from lmi_core.chats.tool_calls.template_formats import template_format
from lmi_core.texts.fill_in_the_middle import find_middle_format


def chat_template(model: ServedModel, with_tools: bool = False) -> str | None:
    """Return the chat template in force, or None."""
    return model.chat_template or model.backend.tokenizer.chat_template(with_tools)


def takes_tools(model: ServedModel) -> bool:
    """Return whether the chat template has a place for tools, and it is known how the model writes its calls."""
    template = chat_template(model, with_tools=True)
    if template is None or "tools" not in template:
        return False
    options = model.options
    return not options.enable_auto_tool_choice or bool(options.tool_call_parser or template_format(template))


def capabilities(model: ServedModel) -> list[str]:
    """Return Ollama's names of what the model can do."""
    can = {
        "completion": True,
        "tools": takes_tools(model),
        "insert": find_middle_format(model.backend.tokenizer) is not None,
        "vision": min(model.backend.max_images, model.options.max_images) > 0,
        "thinking": model.options.reasoning_format is not None,
    }
    return [name for name, holds in can.items() if holds]
