"""Scores of pairs of texts, as vLLM, Jina, Cohere and TEI have them: the requests, the answers and the handler."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Self

import orjson
from pydantic import BeforeValidator, ConfigDict, Field, JsonValue, NonNegativeInt, model_validator

from lmi_core.embedding_backend import is_reranker, require_scores
from lmi_core.embedding_call import EmbeddingCall, EmbeddingWriter
from lmi_core.errors import InvalidPayload
from lmi_core.generation.embedding_request import EmbeddingRequest, ValidEmbedding
from lmi_core.handler import AnswerForm, Call, Route
from lmi_core.payloads.tolerant_payload import TolerantPayload
from lmi_core.served_model import ServedModel
from lmi_handlers.answers.openai import RankedDocuments, RankedTexts, Scores
from lmi_handlers.base.openai_handler import OpenAiHandler, check_model
from lmi_handlers.fields.openai_tolerance import take_fields
from lmi_handlers.fields.passed import TemplateVariables
from lmi_handlers.fields.vectors import CutSide, cosines, direction, json_number, scores_of, sigmoid
from lmi_handlers.openai.embeddings import NAMES, InputFields, TextFields, usage

QUERY = "What is Deep Learning?"
TEXTS: list[JsonValue] = ["A field of machine learning.", "The deep sea."]
TEI = "/rerank"  # the only one of these routes that TEI also has
TEMPLATE_FIELDS = ("instruction", "chat_template_kwargs")


def _text_of(document: object) -> object:
    """Return the text of a document in the form `{"text": ...}`."""
    return document.get("text") if isinstance(document, dict) else document


Text = Annotated[str, BeforeValidator(_text_of, json_schema_input_type=str | dict[str, str])]
Texts = Annotated[
    list[Text], Field(min_length=1), BeforeValidator(lambda value: [value] if isinstance(value, str | dict) else value)
]


class ScoringFields(InputFields, TextFields):
    """The fields of all requests for scores, as vLLM has them."""

    use_activation: bool | None = Field(
        None, description="Whether to apply the model's activation, by default sigmoid, to the scores. Default: true."
    )
    max_tokens_per_query: NonNegativeInt | None = Field(
        None, description="The maximum number of tokens of a query. Default, and 0: all."
    )
    max_tokens_per_doc: NonNegativeInt | None = Field(
        None, description="The maximum number of tokens of a document. Default, and 0: all."
    )
    instruction: str | None = Field(None, description="The variable `instruction` of option.chat_template.")
    chat_template_kwargs: TemplateVariables | None = Field(None, description="Variables of option.chat_template.")

    @property
    def template_arguments(self) -> dict[str, Any]:
        """Variables of the template; `chat_template_kwargs` takes precedence."""
        given = {} if self.instruction is None else {"instruction": self.instruction}
        return given | (self.chat_template_kwargs or {})

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
                text_limits=(self.max_tokens_per_query or 0, self.max_tokens_per_doc or 0),
                template_arguments=self.template_arguments,
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

    def first_name(self, index: int) -> str:
        return "query"


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
        name, first, second = self._texts()
        if first is None or second is None:
            raise ValueError(
                "`text_1` and `text_2` are required, or `queries` and `documents`, or `data_1` and `data_2`"
            )
        if len(first) not in (1, len(second)):
            raise ValueError(
                f"text counts must be equal, or the first must be 1. Given: {len(first)} and {len(second)} (`{name}`)"
            )
        return self

    def _texts(self) -> tuple[str, list[str] | None, list[str] | None]:
        """Return the name of the second texts, and both texts."""
        if self.queries is not None:
            return ("items", self.queries, self.items) if self.documents is None else (
                "documents", self.queries, self.documents
            )  # fmt: skip
        return ("text_2", self.text_1, self.text_2) if self.data_1 is None else ("data_2", self.data_1, self.data_2)

    def requests(self) -> tuple[EmbeddingRequest, ...]:
        """Return a request for each pair."""
        name, first, second = self._texts()
        assert first is not None
        assert second is not None
        return self.requests_for(first * len(second) if len(first) == 1 else first, second, name)

    def first_name(self, index: int) -> str:
        name = "queries" if self.queries is not None else "text_1" if self.data_1 is None else "data_1"
        return name if len(getattr(self, name)) == 1 else f"{name}.{index}"


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


def _rank(scores: Sequence[bytes]) -> list[int]:
    """Return the indices of scores, the highest first."""
    return sorted(range(len(scores)), key=lambda index: float(scores[index]), reverse=True)


class ScoreWriter(EmbeddingWriter):
    """vLLM's list of scores."""

    def __init__(self, response_id: str, model: str) -> None:
        self._id = response_id
        self._model = model

    def vector(self, data: bytes) -> bytes:
        return json_number(data)

    def whole(self, requests: Sequence[ValidEmbedding], vectors: Sequence[bytes]) -> bytes:
        content = {
            "id": self._id,
            "object": "list",
            "created": int(time.time()),
            "model": self._model,
            "data": [
                {"index": index, "object": "score", "score": orjson.Fragment(score)}
                for index, score in enumerate(vectors)
            ],
            "usage": usage(requests),
        }
        return orjson.dumps(content)


class RerankWriter(ScoreWriter):
    """Jina's and Cohere's results, in the order of their scores, with vLLM's usage."""

    def __init__(self, response_id: str, model: str, documents: Sequence[str] | None, top_n: int | None) -> None:
        """`documents` are those of the request, if results contain them."""
        super().__init__(response_id, model)
        self._documents = documents
        self._top_n = top_n or None

    def whole(self, requests: Sequence[ValidEmbedding], vectors: Sequence[bytes]) -> bytes:
        results = [self._result(index, vectors[index]) for index in _rank(vectors)[: self._top_n]]
        content = {"id": self._id, "model": self._model, "usage": usage(requests), "results": results}
        return orjson.dumps(content)

    def _result(self, index: int, score: bytes) -> dict[str, Any]:
        document = {} if self._documents is None else {"document": {"text": self._documents[index]}}
        return {"index": index, **document, "relevance_score": orjson.Fragment(score)}


class CosineWriter(EmbeddingWriter):
    """The cosines of vectors as scores, in the form of another writer. Its vectors have length 1."""

    def __init__(self, pairs: Sequence[tuple[int, int]], writer: ScoreWriter) -> None:
        """`pairs` are the indices of the two vectors of each score."""
        self._pairs = pairs
        self._writer = writer

    def vector(self, data: bytes) -> bytes:
        return direction(data)

    def whole(self, requests: Sequence[ValidEmbedding], vectors: Sequence[bytes]) -> bytes:
        scores = cosines(vectors, self._pairs)
        return self._writer.whole(requests, [self._writer.vector(score) for score in scores])


class TeiRerankWriter(EmbeddingWriter):
    """The results of Text Embeddings Inference, in the order of their scores."""

    def __init__(self, texts: Sequence[str] | None, *, raw: bool) -> None:
        """`texts` are those of the request, if results contain them."""
        self._texts = texts
        self._raw = raw

    def vector(self, data: bytes) -> bytes:
        return json_number(data if self._raw else sigmoid(data))

    def whole(self, requests: Sequence[ValidEmbedding], vectors: Sequence[bytes]) -> bytes:
        results = [
            {
                "index": index,
                **({} if self._texts is None else {"text": self._texts[index]}),
                "score": orjson.Fragment(vectors[index]),
            }
            for index in _rank(vectors)
        ]
        return orjson.dumps(results)


def _rerank(path: str, *tei: type[TeiRerankRequest]) -> Route:
    answers = (AnswerForm(RankedDocuments), *(AnswerForm(RankedTexts) for _ in tei))
    return Route(path, summary="Order documents by their relevance", payloads=(RerankRequest, *tei), answers=answers)


def _score(path: str) -> Route:
    return Route(path, summary="Score pairs of texts", payloads=(ScoreRequest,), answers=(AnswerForm(Scores),))


class RerankHandler(OpenAiHandler):
    name: ClassVar[str] = "rerank"
    summary: ClassVar[str] = "Scores of pairs of texts, in the formats of vLLM, Jina, Cohere and TEI"
    reads_embeddings: ClassVar[bool] = True
    routes: ClassVar[tuple[Route, ...]] = (
        _rerank(TEI, TeiRerankRequest),
        _rerank("/v1/rerank"),
        _rerank("/v2/rerank"),
        _score("/score"),
        _score("/v1/score"),
    )

    def parse(self, call: Call, model: ServedModel) -> EmbeddingCall:
        embeds = not model.backend.generates and not is_reranker(model.backend)
        body = call.json_object()
        is_of_tei = call.path == TEI and body.get("texts") is not None
        if is_of_tei or not embeds:
            require_scores(model.backend, model.name)
        if is_of_tei:
            return _tei_call(call, model)
        payload_type: type[RerankRequest | ScoreRequest] = (
            RerankRequest if call.path.endswith("/rerank") else ScoreRequest
        )
        payload: RerankRequest | ScoreRequest
        payload, ignored = take_fields(body, payload_type, model.options.strict_parameters)
        check_model(payload.model, call, model)
        if embeds or model.chat_template is None:
            ignored += _without_effect(payload, model.options.strict_parameters)
        call = payload.identify(call)
        names = f"score-{call.request_id}", model.name_asked(payload.model)
        writer = ScoreWriter(*names)
        if isinstance(payload, RerankRequest):
            documents = None if payload.return_documents is False else payload.documents
            writer = RerankWriter(*names, documents, payload.top_n)
        scored = EmbeddingCall(payload.requests(), writer, ignored, request_id=call.request_id)
        return _by_cosine(scored, writer, payload) if embeds else scored


def _by_cosine(call: EmbeddingCall, writer: ScoreWriter, payload: RerankRequest | ScoreRequest) -> EmbeddingCall:
    """Return a call that embeds each distinct text of a scoring call once, and answers with the cosines."""
    texts: dict[tuple[str, int], EmbeddingRequest] = {}
    pairs = []
    for index, request in enumerate(call.requests):
        names = payload.first_name(index), request.name
        both = [(str(request.text), request.text_limits[0]), (str(request.pair), request.text_limits[1])]
        for (text, limit), name in zip(both, names, strict=True):
            own = replace(request, text=text, name=name, pair=None, normalize=None, text_limits=(limit, 0))
            texts.setdefault((text, limit), own)
        pairs.append(both)
    indices = {text: index for index, text in enumerate(texts)}
    places = [(indices[first], indices[second]) for first, second in pairs]
    return replace(call, requests=tuple(texts.values()), writer=CosineWriter(places, writer))


def _without_effect(payload: ScoringFields, strict: bool) -> tuple[str, ...]:
    """Return the names of fields that only a template for pairs would read. Raise InvalidPayload for one if strict."""
    given = tuple(name for name in TEMPLATE_FIELDS if getattr(payload, name) is not None)
    if given and strict:
        raise InvalidPayload(f"`{given[0]}` has no effect: this model has no option.chat_template that joins pairs")
    return given


def _tei_call(call: Call, model: ServedModel) -> EmbeddingCall:
    payload, ignored = take_fields(call.json_object(), TeiRerankRequest, model.options.strict_parameters)
    check_model(payload.model, call, model)
    texts = payload.texts if payload.return_text else None
    return EmbeddingCall(payload.requests(), TeiRerankWriter(texts, raw=payload.raw_scores), ignored)
