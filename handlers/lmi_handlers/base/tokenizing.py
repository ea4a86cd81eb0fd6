"""The tokenizer of a model, on the routes of vLLM's server."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.metadata import version
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from lmi_core.calls.answer import json_answer
from lmi_core.errors import InvalidPayload, ModelNotFound, ModelNotReady
from lmi_core.generation.tokenizer import Tokenizer
from lmi_core.handler import Answer, AnswerForm, Call, Route, inquiry, reading
from lmi_core.host.off_loop import read_in_steps, run_off_loop
from lmi_core.payloads.exact_json import writable
from lmi_core.payloads.json_list import encode_items, object_with_lists
from lmi_core.payloads.payload import quote
from lmi_core.payloads.tolerant_payload import TolerantPayload
from lmi_core.served_model import ManagedModel, ServedModels
from lmi_core.tolerance import names_of
from lmi_handlers.answers.openai import DetokenizedText, ServerLoad, ServerVersion, TokenizedText
from lmi_handlers.base.openai_handler import asked_model
from lmi_handlers.chat.generation import chat_prompt
from lmi_handlers.chat.images import image_parts
from lmi_handlers.chat.request import ChatRequest
from lmi_handlers.fields.openai_tolerance import take_fields
from lmi_handlers.fields.request_headers import TARGET_MODEL_HEADER

STEP = 10_000  # tokens


class TokenizeText(TolerantPayload):
    model_config = ConfigDict(json_schema_extra={"examples": [{"prompt": "This is a text example"}]})

    model: str | None = Field(None, description="The name of the model; required if several are served.")
    prompt: str = Field(description="The text to tokenize.")
    add_special_tokens: bool | None = Field(
        None, description="Add the special tokens that the model expects around a text. Default: true."
    )
    return_token_strs: bool | None = Field(None, description="Also return the tokens as they appear in the vocabulary.")


class TokenizeChat(ChatRequest):
    """A chat whose prompt alone is used; accepts any body of `/v1/chat/completions`."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"messages": [{"role": "user", "content": "Hi"}]}]})

    return_token_strs: bool | None = Field(None, description="Also return the tokens as they appear in the vocabulary.")


class DetokenizeRequest(TolerantPayload):
    model_config = ConfigDict(json_schema_extra={"examples": [{"tokens": [0, 1, 2]}]})

    model: str | None = Field(None, description="The name of the model; required if several are served.")
    tokens: list[Annotated[int, Field(ge=0)]] = Field(description="The token ids.")


P = TypeVar("P", bound=BaseModel)


async def tokenize(call: Call, dispatcher: ServedModels) -> Answer:
    """Return the tokens of a text or a chat. Raise InvalidPayload, or ModelNotFound for an unknown model."""
    given = call.json_object()
    if (given.get("prompt") is None) == (given.get("messages") is None):
        raise InvalidPayload("one of `prompt` and `messages` is required")
    if given.get("messages") is None:
        text, model, ignored = await read_call(call, dispatcher, TokenizeText)
        steps = partial(_tokens_of_text, text, model)
    else:
        chat, model, ignored = await read_call(call, dispatcher, TokenizeChat)
        steps = partial(_tokens_of_chat, chat, model)
    return Answer(200, "application/json", await read_in_steps(len(call.body), steps), ignored)


def _tokens_of_text(text: TokenizeText, model: ManagedModel) -> Iterator[bytes | None]:
    ids = model.backend.tokenizer.encode(text.prompt, text.add_special_tokens is not False)
    yield from _tokens(ids, model, bool(text.return_token_strs))


def _tokens_of_chat(chat: TokenizeChat, model: ManagedModel) -> Iterator[bytes | None]:
    for place, _ in image_parts(chat):
        raise InvalidPayload(f"`{place}` is an image, but only text can be tokenized")
    ids = model.backend.tokenizer.encode(chat_prompt(chat, model), bool(chat.add_special_tokens))
    yield from _tokens(ids, model, bool(chat.return_token_strs))


def _tokens(ids: list[int], model: ManagedModel, with_names: bool) -> Iterator[bytes | None]:
    """Yield None after each step of the work, then the answer."""
    tokens, names, name = list[bytes](), list[bytes](), model.backend.tokenizer.token_name
    for begin in range(0, len(ids), STEP):
        some = ids[begin : begin + STEP]
        tokens.append(encode_items(some))
        if with_names:
            names.append(encode_items([name(token_id) for token_id in some]))
        yield None
    content = {"count": len(ids), "max_model_len": model.backend.max_length}
    named = {"token_strs": names} if with_names else {}
    yield object_with_lists(content if with_names else content | {"token_strs": None}, {"tokens": tokens} | named)


async def detokenize(call: Call, dispatcher: ServedModels, *, skip_special_tokens: bool = False) -> Answer:
    """Answer with the text, by default including special tokens, as vLLM does.

    Raise InvalidPayload or ModelNotFound like `read_call`.
    """
    payload, model, ignored = await read_call(call, dispatcher, DetokenizeRequest)
    written = partial(_text, payload.tokens, model.backend.tokenizer, skip_special_tokens)
    text = await run_off_loop(len(call.body), written)
    return json_answer({"prompt": text}, ignored=ignored)


def _text(token_ids: list[int], tokenizer: Tokenizer, skip_special_tokens: bool) -> str:
    last = tokenizer.vocabulary_size - 1
    for token_id in token_ids:
        if token_id > last:
            raise InvalidPayload(f"`tokens` must contain token ids from 0 to {last}. Given: {quote(token_id)}")
    return tokenizer.decode(token_ids, skip_special_tokens)


async def tokenizer_info(call: Call, dispatcher: ServedModels) -> Answer:
    """Answer with the tokenizer's configuration and chat template. Raise ModelNotFound unless an option allows it."""
    model = asked_model(call, dispatcher, call.query.get("model"))
    await model.health()
    check_tokenizer(model)
    if not model.options.enable_tokenizer_info_endpoint:
        raise ModelNotFound(
            f"the tokenizer of model `{model.name}` is not served: option.enable_tokenizer_info_endpoint=true "
            "serves it, including the chat template"
        )
    tokenizer = model.backend.tokenizer
    template = model.chat_template or tokenizer.chat_template(with_tools=False)
    # `model_max_length` is 10^30 where nothing limits it.
    return json_answer(writable(tokenizer.configuration() | ({"chat_template": template} if template else {})))


async def show_version(call: Call, dispatcher: ServedModels) -> Answer:
    return json_answer({"version": version("lmi-handlers")})


async def show_load(call: Call, dispatcher: ServedModels) -> Answer:
    return json_answer({"server_load": sum(model.admission.taken for model in dispatcher.all_models())})


def described_model(call: Call, dispatcher: ServedModels) -> ManagedModel:
    """Return the model named by a header, or the only one, for a call that only describes it.

    The call takes no place in the queue. Raise ModelNotReady until it is loaded, or ModelNotFound for an unknown model,
    and for a model function.
    """
    model = dispatcher.find(call.headers.get(TARGET_MODEL_HEADER))
    if not model.ready:
        raise ModelNotReady(f"model {model.name} is not ready")
    check_tokenizer(model)
    return model


def check_tokenizer(model: ManagedModel) -> None:
    """Raise ModelNotFound for a loaded model without a tokenizer."""
    if not model.generates or not hasattr(model.backend, "tokenizer"):
        raise ModelNotFound(f"model `{model.name}` has no tokenizer: its model function answers requests")


# Reads a body as the dialect does, such as a `take_fields`; receives the payload's type and whether to be strict.
TakeFields = Callable[[Mapping[str, Any], type[P], bool], tuple[P, tuple[str, ...]]]


async def read_call(
    call: Call, dispatcher: ServedModels, payload_type: type[P], take: TakeFields[P] = take_fields
) -> tuple[P, ManagedModel, tuple[str, ...]]:
    """Return a call's payload, its model, which has a tokenizer, and the dropped names.

    The call takes no place in the model's queue. Raise InvalidPayload if the body is invalid, and ModelNotFound,
    ModelNotReady or BackendUnhealthy if the model cannot answer.
    """
    taken = partial(take, call.json_object(), payload_type, False)
    payload, ignored = await run_off_loop(len(call.body), taken)
    model = asked_model(call, dispatcher, getattr(payload, "model", None))
    await model.health()
    check_tokenizer(model)
    if ignored and model.options.strict_parameters:
        take(call.json_object(), payload_type, True)
    model.ignored.report(ignored, lambda: names_of([payload_type]))
    return payload, model, ignored


TOKENIZE_PAYLOADS = (TokenizeText, TokenizeChat)
ROUTES = (
    inquiry("/tokenize", tokenize, "Tokenize a text or a chat", TOKENIZE_PAYLOADS, AnswerForm(TokenizedText)),
    inquiry("/detokenize", detokenize, "Detokenize token ids", (DetokenizeRequest,), AnswerForm(DetokenizedText)),
    reading(
        "/tokenizer_info",
        tokenizer_info,
        "Show the tokenizer's configuration, if an option allows it",
        AnswerForm(dict[str, Any]),
    ),
    Route("/load", "GET", show_load, "Count the requests in progress", answers=(AnswerForm(ServerLoad),)),
    Route("/version", "GET", show_version, "Show the version of this server", answers=(AnswerForm(ServerVersion),)),
)
