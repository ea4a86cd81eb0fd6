"""The capabilities of a served model."""

from dataclasses import dataclass

from lmi_core.embedding_backend import is_reranker
from lmi_core.parsing.tool_calls.template_formats import template_format
from lmi_core.served_model import ManagedModel, ServedModel
from lmi_core.texts.fill_in_the_middle import find_middle_format

LOG_PROBS = "logprobs"  # the parameter's name in backends


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The capabilities of a model for requests."""

    completion: bool  # text that continues a text
    chat: bool
    tools: bool
    insert: bool  # text between two texts
    reasoning: bool  # separated from the answer
    log_probs: bool  # of each token and the most likely alternatives
    images: int  # the maximum in one prompt
    embeddings: bool
    rerank: bool  # scores pairs of texts


def chat_template(model: ServedModel, with_tools: bool = False) -> str | None:
    """Return the chat template in force, or None."""
    return model.chat_template or model.backend.tokenizer.chat_template(with_tools)


def takes_tools(model: ServedModel) -> bool:
    """Return whether the chat template supports tools and the model's tool call format is known."""
    template = chat_template(model, with_tools=True)
    if template is None or "tools" not in template:
        return False
    options = model.options
    return not options.enable_auto_tool_choice or bool(options.tool_call_parser or template_format(template))


def capabilities(model: ServedModel) -> Capabilities:
    """Return the capabilities of a loaded model with a backend."""
    backend = model.backend
    generates = backend.generates
    return Capabilities(
        completion=generates,
        chat=generates and chat_template(model) is not None,
        tools=generates and takes_tools(model),
        insert=generates and find_middle_format(backend.tokenizer) is not None,
        reasoning=generates and model.options.reasoning_format is not None,
        log_probs=generates and LOG_PROBS in backend.parameters_type.model_fields,
        images=min(backend.max_images, model.options.max_images) if generates else 0,
        embeddings=not generates and not is_reranker(backend),
        rerank=is_reranker(backend),
    )


def known_capabilities(model: ManagedModel) -> Capabilities | None:
    """Return the capabilities of a model; None while it loads, or if its own function answers."""
    if not model.generates or getattr(model.backend, "tokenizer", None) is None:
        return None
    return capabilities(model)
