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
        description="base64: numbers of 4 bytes each; bytes: these numbers of all inputs alone, with the rest of the "
        "answer in the header `metadata`; bytes_only: without it. Default: float.",
    )
    dimensions: int | None = Field(
        None, ge=1, description="Numbers in each vector, for models that have several sizes. Default: all."
    )
    use_activation: bool | None = Field(
        None, description="Whether each vector is made 1 long. Default: as the model's files say."
    )
    normalize: bool | None = Field(None, description="The older name of `use_activation`.")
    embed_dtype: Literal["float32"] | None = Field(None, description="The type of the numbers in base64 and bytes.")
    endianness: Literal["native", "little", "big"] | None = Field(
        None, description="The order of their bytes. Default: native, which is little."
    )
    padding: Literal["do_not_pad"] | None = Field(None, description="Inputs count as they are.")
    cache_salt: CacheSalt | None = Field(
        None, description="What is computed for an input is shared only with requests of the same salt."
    )

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

    model: str | None = Field(None, description="One of `GET /v1/models`; may be left out where there is only one.")
    input: Prompts = Field(description="A text, or token ids; or a list of such inputs, each with a vector of its own.")
    user: str | None = Field(None, description="Who asks: goes to the server's log, beside the request's id.")
    add_special_tokens: bool | None = Field(None, description="Those that the model expects. Default: true.")
    truncate_prompt_tokens: int | None = Field(
        None, ge=-1, description="Keep only this many tokens of each input; -1: as many as the model takes."
    )
    truncation_side: Literal["left", "right"] | None = Field(
        None, description="Which end of an input is then cut off. Default: as the tokenizer says."
    )
    request_id: RequestId | None = Field(
        None, description="Names the request in its answer, in the log and to abort it, unless x-request-id does."
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
