"""The generation of `/api/generate`."""

from collections.abc import Mapping
from typing import Any

from lmi_core.chat_formatter import ChatAnswer
from lmi_core.errors import InvalidPayload
from lmi_core.generation.request import GenerationRequest
from lmi_core.handler import Generation
from lmi_core.parsing.reasoning.parser import AnswerContext
from lmi_core.parsing.reasoning.reader import Reasoning
from lmi_core.served_model import ServedModel
from lmi_core.serving.capabilities import chat_template
from lmi_core.texts.fill_in_the_middle import middle_prompt
from lmi_handlers.chat.generation import UP_TO_THE_CONTEXT
from lmi_handlers.ollama.asked import Asked
from lmi_handlers.ollama.chat import OllamaChatRequest, templated
from lmi_handlers.ollama.payload import OllamaGenerate, OllamaMessage


class OllamaPromptRequest(OllamaChatRequest):
    """The chat of one prompt, with the images of the request."""

    def part_path(self, message: int, part: int) -> str:
        return f"images.{part}"


def answer_to_prompt(payload: OllamaGenerate, prompt: str, asked: Asked) -> Generation:
    """Return the generation that answers a prompt.

    Raise InvalidPayload if the model does not support the request.
    """
    if payload.raw or payload.suffix:
        field = "raw" if payload.raw else "suffix"
        for other in ("system", "images", *(("suffix",) if payload.raw else ())):
            if getattr(payload, other):
                raise InvalidPayload(
                    f"`{field}` and `{other}` cannot be used together: the prompt goes to the model as it is, without "
                    "its chat template"
                )
    if payload.suffix:
        middle = middle_prompt(asked.model.backend.tokenizer, prompt, payload.suffix, add_special_tokens=True)
        return _as_it_is(middle.prompt_ids, asked, _ends(middle.stop_token_ids, asked.model))
    if payload.raw or (chat_template(asked.model) is None and not payload.system and not payload.images):
        return _as_it_is(prompt, asked)
    system = [OllamaMessage(role="system", content=payload.system)] if payload.system else []
    user = OllamaMessage(role="user", content=prompt, images=payload.images)
    return templated([*system, user], asked, OllamaPromptRequest, inputs="prompt")


def _ends(stop_token_ids: list[int], model: ServedModel) -> Mapping[str, Any]:
    return {"stop_token_ids": stop_token_ids} if model.backend.obeys("stop_token_ids") else {}


def _as_it_is(prompt: str | list[int], asked: Asked, further: Mapping[str, Any] | None = None) -> Generation:
    parameters, names = asked.parameters()
    parameters.setdefault("max_new_tokens", UP_TO_THE_CONTEXT)
    request = GenerationRequest(
        prompt, parameters | dict(further or {}), names={**names, "inputs": "prompt"}, fits_context=True
    )
    answer = ChatAnswer(
        response_id=asked.call.request_id,
        model=asked.name,
        tokenizer=asked.model.backend.tokenizer,
        log_probs=bool(asked.payload.logprobs),
        reasoning=_reasoning(prompt, asked),
    )
    return Generation((request,), asked.formatter(answer))


def _reasoning(prompt: str | list[int], asked: Asked) -> Reasoning | None:
    """Return how to split the answer to a prompt without a chat template; it cannot request reasoning."""
    reasoning_format = asked.model.options.reasoning_format
    if not asked.payload.think or reasoning_format is None or not isinstance(prompt, str):
        return None
    return Reasoning(reasoning_format, asked.model.backend.tokenizer, AnswerContext(prompt))
