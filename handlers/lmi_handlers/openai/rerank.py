"""The handler of requests for scores of pairs of texts: vLLM's, Jina's, Cohere's and TEI's."""

from typing import ClassVar

from lmi_core.embedding_backend import require_scores
from lmi_core.embedding_call import EmbeddingCall
from lmi_core.handler import AnswerForm, Call, Route
from lmi_core.served_model import ServedModel
from lmi_handlers.answers.openai import RankedDocuments, RankedTexts, Scores
from lmi_handlers.base.openai_handler import OpenAiHandler, check_model
from lmi_handlers.fields.openai_tolerance import take_fields
from lmi_handlers.fields.users import log_user
from lmi_handlers.openai.rerank_fields import RerankRequest, ScoreRequest, TeiRerankRequest
from lmi_handlers.openai.rerank_writer import RerankWriter, ScoreWriter, TeiRerankWriter

TEI = "/rerank"  # the only one of these routes that TEI also has


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
        require_scores(model.backend, model.name)
        body = call.json_object()
        if call.path == TEI and "texts" in body:
            return _tei_call(call, model)
        payload_type: type[RerankRequest | ScoreRequest] = (
            RerankRequest if call.path.endswith("/rerank") else ScoreRequest
        )
        payload: RerankRequest | ScoreRequest
        payload, ignored = take_fields(body, payload_type, model.options.strict_parameters)
        check_model(payload.model, call, model)
        call = payload.named(call)
        log_user(call, payload.user)
        names = f"score-{call.request_id}", model.name_asked(payload.model)
        writer = ScoreWriter(*names)
        if isinstance(payload, RerankRequest):
            documents = None if payload.return_documents is False else payload.documents
            writer = RerankWriter(*names, documents, payload.top_n)
        return EmbeddingCall(payload.requests(), writer, ignored, request_id=call.request_id)


def _tei_call(call: Call, model: ServedModel) -> EmbeddingCall:
    payload, ignored = take_fields(call.json_object(), TeiRerankRequest, model.options.strict_parameters)
    check_model(payload.model, call, model)
    texts = payload.texts if payload.return_text else None
    return EmbeddingCall(payload.requests(), TeiRerankWriter(texts, raw=payload.raw_scores), ignored)
