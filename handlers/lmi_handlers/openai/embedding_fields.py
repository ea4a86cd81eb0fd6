"""The requests for embeddings in OpenAI's dialect, with vLLM's fields."""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from lmi_core.generation.embedding_request import EmbeddingRequest, Side
from lmi_core.generation.parameters import CacheSalt
from lmi_core.handler import Call
from lmi_core.payloads.tolerant_payload import TolerantPayload
from lmi_handlers.chat.request import ChatRequest
from lmi_handlers.completions.request import Prompts
from lmi_handlers.fields.passed import RequestId, named_call

Encoding = Literal["float", "base64", "bytes", "bytes_only"]
NAMES = {"truncate": "truncate_prompt_tokens"}


class VectorFields(BaseModel):
    """The fields about the form of vectors, for texts and chats."""

    encoding_format: Encoding | None = Field(
        None,
        description="The encoding of the vectors. base64: 4 bytes per number; bytes: only these bytes, with the rest "
        "of the answer in the header `metadata`; bytes_only: without that header. Default: float.",
    )
    dimensions: int | None = Field(
        None, ge=1, description="The size of each vector, for models that have several sizes. Default: the full size."
    )
    use_activation: bool | None = Field(
        None, description="Whether each vector is normalized to length 1. Default: as configured in the model's files."
    )
    normalize: bool | None = Field(None, description="The older name of `use_activation`.")
    embed_dtype: Literal["float32"] | None = Field(None, description="The type of the numbers in base64 and bytes.")
    endianness: Literal["native", "little", "big"] | None = Field(
        None, description="The byte order of the numbers. Default: native, which is little."
    )
    padding: Literal["do_not_pad"] | None = Field(None, description="Inputs are never padded.")
    cache_salt: CacheSalt | None = Field(None, description="Share cached results only with requests of this salt.")

    @model_validator(mode="after")
    def _one_name(self) -> Self:
        if None not in (self.use_activation, self.normalize) and self.use_activation != self.normalize:
            raise ValueError("`use_activation` and `normalize` are the same; give one of them")
        return self

    def request_for(
        self, text: str | list[int], name: str, special: bool, truncate: int | None, side: Side | None
    ) -> EmbeddingRequest:
        """Return the request for a text's vector in this form."""
        normalize = self.normalize if self.use_activation is None else self.use_activation
        salt = self.cache_salt
        return EmbeddingRequest(text, name, special, self.dimensions, normalize, truncate, side, NAMES, cache_salt=salt)


class EmbeddingsRequest(VectorFields, TolerantPayload):
    """A request for the vectors of texts, given as text or token ids."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"input": ["What is Deep Learning?", "It is a really cool field."]}]}
    )

    model: str | None = Field(None, description="A model of `GET /v1/models`; may be omitted if only one is served.")
    input: Prompts = Field(description="A text, or token ids; or a list of such inputs, each of which gets a vector.")
    user: str | None = Field(None, description="The end user, written to the server's log.")
    add_special_tokens: bool | None = Field(None, description="Add the model's special tokens. Default: true.")
    truncate_prompt_tokens: int | None = Field(
        None, ge=-1, description="Truncate each input to this many tokens; -1 means the model's maximum."
    )
    truncation_side: Literal["left", "right"] | None = Field(
        None, description="The side of an input to truncate. Default: as configured in the tokenizer."
    )
    request_id: RequestId | None = Field(
        None,
        description="The id of the request in its answer, in the log and for aborting it; the header x-request-id "
        "overrides it.",
    )

    def named(self, call: Call) -> Call:
        """Return the call with the request's own id, unless a header sets one."""
        return named_call(call, self.request_id)

    def requests(self) -> tuple[EmbeddingRequest, ...]:
        """Return a request for each input."""
        one = len(self.input) == 1
        special = self.add_special_tokens is not False
        cut = (self.truncate_prompt_tokens, self.truncation_side)
        return tuple(
            self.request_for(text, "input" if one else f"input.{index}", special, *cut)
            for index, text in enumerate(self.input)
        )


class EmbeddingsChat(VectorFields, ChatRequest):
    """A request for the vector of a chat; only the fields of its prompt have an effect."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"messages": [{"role": "user", "content": "Hi"}]}]})

    def request(self, prompt: str) -> EmbeddingRequest:
        """Return the request for the vector of the chat's prompt."""
        cut = (self.truncate_prompt_tokens, self.truncation_side)
        return self.request_for(prompt, "messages", bool(self.add_special_tokens), *cut)
