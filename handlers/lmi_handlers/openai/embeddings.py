"""The handler of OpenAI's embeddings."""

from typing import ClassVar, TypeVar

from lmi_core.embedding_backend import require_embeddings
from lmi_core.embedding_call import EmbeddingCall
from lmi_core.errors import InvalidPayload
from lmi_core.generation.embedding_request import EmbeddingRequest
from lmi_core.handler import Call, Route
from lmi_core.served_model import ServedModel
from lmi_handlers.answers.openai import EMBEDDINGS
from lmi_handlers.base.openai_handler import OpenAiHandler, check_model
from lmi_handlers.chat.generation import chat_prompt
from lmi_handlers.chat.images import image_parts
from lmi_handlers.fields.openai_tolerance import take_fields
from lmi_handlers.fields.users import log_user
from lmi_handlers.openai.embedding_fields import EmbeddingsChat, EmbeddingsRequest
from lmi_handlers.openai.embedding_writer import BytesEmbeddingWriter, OpenAiEmbeddingWriter

P = TypeVar("P", EmbeddingsRequest, EmbeddingsChat)


class OpenAiEmbeddingsHandler(OpenAiHandler):
    name: ClassVar[str] = "openai_embeddings"
    summary: ClassVar[str] = "OpenAI's embeddings"
    reads_embeddings: ClassVar[bool] = True
    routes: ClassVar[tuple[Route, ...]] = (
        Route(
            "/v1/embeddings",
            summary="Make vectors of texts",
            payloads=(EmbeddingsRequest, EmbeddingsChat),
            answers=EMBEDDINGS,
        ),
    )

    def parse(self, call: Call, model: ServedModel) -> EmbeddingCall:
        require_embeddings(model.backend, model.name)
        given = call.json_object()
        if (given.get("input") is None) == (given.get("messages") is None):
            raise InvalidPayload("one of `input` and `messages` is required")
        if given.get("input") is None:
            chat, ignored = _taken(call, model, EmbeddingsChat)
            return _answered(chat, (chat.request(_prompt(chat, model)),), ignored, call, model)
        texts, ignored = _taken(call, model, EmbeddingsRequest)
        return _answered(texts, texts.requests(), ignored, call, model)


def _taken(call: Call, model: ServedModel, payload_type: type[P]) -> tuple[P, tuple[str, ...]]:
    """Return the payload and the names of the ignored fields. Raise InvalidPayload or ModelNotFound."""
    payload, ignored = take_fields(call.json_object(), payload_type, model.options.strict_parameters)
    check_model(payload.model, call, model)
    return payload, ignored


def _prompt(chat: EmbeddingsChat, model: ServedModel) -> str:
    """Return the text of a chat, without the start of an answer unless the client asks for it, as in vLLM."""
    for place, _ in image_parts(chat):
        raise InvalidPayload(f"`{place}` is an image, but only texts have embeddings")
    begins = bool(chat.add_generation_prompt)
    return chat_prompt(chat.model_copy(update={"add_generation_prompt": begins}), model)


def _answered(
    payload: EmbeddingsRequest | EmbeddingsChat,
    requests: tuple[EmbeddingRequest, ...],
    ignored: tuple[str, ...],
    call: Call,
    model: ServedModel,
) -> EmbeddingCall:
    call = payload.named(call)
    log_user(call, payload.user)
    encoding = payload.encoding_format or "float"
    writer_type = BytesEmbeddingWriter if encoding.startswith("bytes") else OpenAiEmbeddingWriter
    writer = writer_type(
        f"embd-{call.request_id}", model.name_asked(payload.model), encoding, payload.endianness or "native"
    )
    return EmbeddingCall(requests, writer, ignored, request_id=call.request_id)
