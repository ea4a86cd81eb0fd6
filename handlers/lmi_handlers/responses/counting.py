"""The route that counts the tokens of a request's input."""

from functools import partial

from lmi_core.calls.answer import json_answer
from lmi_core.calls.conversations import Turn
from lmi_core.errors import InvalidPayload
from lmi_core.handler import Answer, AnswerForm, Call
from lmi_core.host.beside_loop import read_beside
from lmi_core.route import inquiry
from lmi_core.served_model import ManagedModel, ServedModels
from lmi_handlers.base.tokenizing import asked
from lmi_handlers.chat.generation import chat_prompt
from lmi_handlers.chat.images import image_parts
from lmi_handlers.responses.answers import InputTokens
from lmi_handlers.responses.chat import response_chat, truncated
from lmi_handlers.responses.history import conversation, previous_turn
from lmi_handlers.responses.request import ResponsesRequest, read_fields


async def count_input_tokens(call: Call, dispatcher: ServedModels) -> Answer:
    """Answer with the number of tokens in the prompt of a response.

    The call takes no place in the model's queue. Raise InvalidPayload or ResponseNotFound if the request is invalid,
    and ModelNotFound or ModelNotReady if the model cannot answer.
    """
    payload, model, ignored = await asked(call, dispatcher, ResponsesRequest, read_fields)
    previous = previous_turn(payload, model, call.key)
    size = len(call.body) + sum(turn.size for turn in (previous.conversation() if previous else ()))
    count = await read_beside(size, partial(_count, payload, previous, model, call))
    return json_answer({"object": "response.input_tokens", "input_tokens": count}, ignored=ignored)


def _count(payload: ResponsesRequest, previous: Turn | None, model: ManagedModel, call: Call) -> int:
    chat = response_chat(payload, conversation(payload, previous, model, call.key))
    for place, _ in image_parts(chat):
        raise InvalidPayload(f"`{place}` is an image, and only the tokens of texts are counted here")
    if payload.truncation == "auto":
        chat = truncated(chat, model, call.request_id)
    return len(model.backend.tokenizer.encode(chat_prompt(chat, model), bool(chat.add_special_tokens)))


ROUTE = inquiry(
    "/v1/responses/input_tokens",
    count_input_tokens,
    "The number of a response's input tokens",
    (ResponsesRequest,),
    AnswerForm(InputTokens),
)
