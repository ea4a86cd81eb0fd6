"""The number of tokens of a message's prompt."""

from contextlib import nullcontext
from functools import partial

from lmi_core.calls.answer import json_answer
from lmi_core.generation.request import GenerationRequest
from lmi_core.handler import Answer, Call
from lmi_core.host.beside_loop import read_beside
from lmi_core.served_model import ManagedModel, ServedModels
from lmi_core.serving.validation import with_images
from lmi_handlers.anthropic.chat import message_generation
from lmi_handlers.anthropic.formatters import AnthropicFormatter, MessageAnswer
from lmi_handlers.anthropic.payload import CountTokensRequest
from lmi_handlers.anthropic.tolerance import take_fields
from lmi_handlers.base.anthropic_errors import REQUEST_ID_HEADER
from lmi_handlers.base.tokenizing import asked
from lmi_handlers.chat.generation import ChatForm


async def count_tokens(call: Call, dispatcher: ServedModels) -> Answer:
    """Answer with the number of tokens in the prompt of `/v1/messages` for this body, including images.

    Only images take a place in the model's queue, because they may have to be downloaded. Raise InvalidPayload,
    ModelNotFound or Overloaded.
    """
    payload, model, ignored = await asked(call, dispatcher, CountTokensRequest, take_fields)
    form = ChatForm(partial(AnthropicFormatter, MessageAnswer(call.request_id, 1, model.backend.max_length)), True)
    written = partial(message_generation, payload, call, model, form)  # runs the chat template
    (request,) = (await read_beside(len(call.body), written)).requests
    with dispatcher.admit(model) if request.images else nullcontext():
        count = await _count(request, model)
    counts = {"input_tokens": count, "context_management": {"original_input_tokens": count}}
    return json_answer(counts, ignored=ignored, headers={REQUEST_ID_HEADER: call.request_id})


async def _count(request: GenerationRequest, model: ManagedModel) -> int:
    if request.images:
        placed = (await with_images(request, model.backend)).image_prompt
        assert placed is not None
        return len(placed.prompt_ids)
    assert isinstance(request.prompt, str)
    encode = partial(model.backend.tokenizer.encode, request.prompt, request.add_special_tokens)
    return len(await read_beside(len(request.prompt), encode))
