"""The requests for scores of pairs of texts: vLLM's, with Jina's and Cohere's fields, and those of TEI."""

from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, NonNegativeInt, model_validator

from lmi_core.generation.embedding_request import EmbeddingRequest, Side
from lmi_core.generation.parameters import CacheSalt
from lmi_core.handler import Call
from lmi_core.payloads.tolerant_payload import TolerantPayload
from lmi_handlers.fields.passed import RequestId, named_call
from lmi_handlers.fields.vectors import CutSide, scores_of

NAMES = {"truncate": "truncate_prompt_tokens"}
QUERY = "What is Deep Learning?"
TEXTS: list[JsonValue] = ["A field of machine learning.", "The deep sea."]


def _text_of(document: object) -> object:
    """Return the text of a document in the form `{"text": ...}`."""
    return document.get("text") if isinstance(document, dict) else document


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str | dict) else value


Text = Annotated[str, BeforeValidator(_text_of, json_schema_input_type=str | dict[str, str])]
Texts = Annotated[list[Text], Field(min_length=1), BeforeValidator(_as_list)]


class ScoringFields(BaseModel):
    """The fields of all requests for scores, as vLLM has them."""

    model: str | None = Field(None, description="A model of `GET /v1/models`; may be omitted if only one is served.")
    user: str | None = Field(None, description="The end user, written to the server's log.")
    use_activation: bool | None = Field(
        None, description="Whether to apply the model's activation, by default sigmoid, to the scores. Default: true."
    )
    truncate_prompt_tokens: int | None = Field(
        None, ge=-1, description="Truncate each pair to this many tokens; -1 means the model's maximum."
    )
    truncation_side: Side | None = Field(None, description="The side to truncate. Default: the tokenizer's.")
    max_tokens_per_query: NonNegativeInt = Field(0, description="The maximum number of tokens of a query; 0 means all.")
    max_tokens_per_doc: NonNegativeInt = Field(
        0, description="The maximum number of tokens of a document; 0 means all."
    )
    padding: Literal["do_not_pad"] | None = Field(None, description="Inputs are never padded.")
    cache_salt: CacheSalt | None = Field(None, description="Share cached results only with requests of this salt.")
    request_id: RequestId | None = Field(
        None,
        description="The id of the request in its answer, in the log and for aborting it; the header x-request-id "
        "overrides it.",
    )

    def named(self, call: Call) -> Call:
        """Return the call with the request's own id, unless a header sets one."""
        return named_call(call, self.request_id)

    def requests_for(self, first: Sequence[str], second: Sequence[str], name: str) -> tuple[EmbeddingRequest, ...]:
        """Return a request for each pair; `name` is the client's name of the second texts."""
        return tuple(
            EmbeddingRequest(
                text,
                f"{name}.{index}",
                normalize=self.use_activation,
                truncate=self.truncate_prompt_tokens,
                truncation_side=self.truncation_side,
                names=NAMES,
                cache_salt=self.cache_salt,
                pair=pair,
                text_limits=(self.max_tokens_per_query, self.max_tokens_per_doc),
            )
            for index, (text, pair) in enumerate(zip(first, second, strict=True))
        )


class RerankRequest(ScoringFields, TolerantPayload):
    """A request for the order of documents by their relevance to a query."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"query": QUERY, "documents": TEXTS}]})

    query: Text = Field(description="The query.")
    documents: Texts = Field(description="The documents: texts, or objects with `text`.")
    top_n: int | None = Field(None, ge=0, description="The number of results. Default, and 0: all.")
    return_documents: bool | None = Field(None, description="Whether results contain the documents. Default: true.")

    def requests(self) -> tuple[EmbeddingRequest, ...]:
        """Return a request for each document."""
        return self.requests_for([self.query] * len(self.documents), self.documents, "documents")


class ScoreRequest(ScoringFields, TolerantPayload):
    """A request for the scores of pairs: one text with several others, or two lists of equal length."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"text_1": QUERY, "text_2": TEXTS}]})

    text_1: Texts | None = Field(None, description="The first text of each pair; a single one is used for all pairs.")
    text_2: Texts | None = Field(None, description="The second text of each pair.")
    queries: Texts | None = Field(None, description="Another name of `text_1`.")
    documents: Texts | None = Field(None, description="Another name of `text_2`, together with `queries`.")
    items: Texts | None = Field(None, description="Another name of `text_2`, together with `queries`.")
    data_1: Texts | None = Field(None, description="Another name of `text_1`.")
    data_2: Texts | None = Field(None, description="Another name of `text_2`, together with `data_1`.")

    @model_validator(mode="after")
    def _pairs(self) -> Self:
        name, first, second = self._given()
        if first is None or second is None:
            raise ValueError(
                "`text_1` and `text_2` are required, or `queries` and `documents`, or `data_1` and `data_2`"
            )
        if len(first) not in (1, len(second)):
            raise ValueError(
                f"text counts must be equal, or the first must be 1. Given: {len(first)} and {len(second)} (`{name}`)"
            )
        return self

    def _given(self) -> tuple[str, list[str] | None, list[str] | None]:
        """Return the name of the second texts, and both texts."""
        if self.queries is not None:
            return ("items", self.queries, self.items) if self.documents is None else (
                "documents", self.queries, self.documents
            )  # fmt: skip
        return ("text_2", self.text_1, self.text_2) if self.data_1 is None else ("data_2", self.data_1, self.data_2)

    def requests(self) -> tuple[EmbeddingRequest, ...]:
        """Return a request for each pair."""
        name, first, second = self._given()
        assert first is not None
        assert second is not None
        return self.requests_for(first * len(second) if len(first) == 1 else first, second, name)


class TeiRerankRequest(TolerantPayload):
    """The request of Text Embeddings Inference for the order of texts by their relevance to a query."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"query": QUERY, "texts": TEXTS}]})

    query: str = Field(description="The query.")
    texts: list[str] = Field(min_length=1, description="The texts to rank.")
    raw_scores: bool = Field(False, description="Whether to return the model's raw scores, without sigmoid.")
    return_text: bool = Field(False, description="Whether results contain the texts.")
    truncate: bool | None = Field(None, description="Truncate pairs that are too long. Default: they are an error.")
    truncation_direction: CutSide = Field("right", description="The side of a text to truncate.")
    model: str | None = Field(None, description="The name of the model; required if several are served.")

    def requests(self) -> tuple[EmbeddingRequest, ...]:
        """Return a request for each text, for the model's own score."""
        pairs = [(self.query, text) for text in self.texts]
        return scores_of(pairs, "texts", truncates=self.truncate, side=self.truncation_direction)
