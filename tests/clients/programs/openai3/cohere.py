"""Cohere's own client, for rerankers."""

from typing import Any

from cohere import AsyncClientV2, BadRequestError, Client, ClientV2

from tests.clients.programs.cases import case, equal, raising, ranking
from tests.clients.programs.values import RANKING

PACKAGE = "cohere"
# The score of the scripted reranker grows with the number of words.
ASKED: dict[str, Any] = {"model": RANKING, "query": "What is it?", "documents": ["A sea.", "A field of science."]}


@case("Cohere's rerank", "documents in order of relevance, with both versions of the API")
def rerank() -> None:
    second = ClientV2(api_key="any", base_url=ranking()).rerank(**ASKED, max_tokens_per_doc=None)  # as in LangChain
    first = Client(api_key="any", base_url=ranking()).rerank(**ASKED, return_documents=True)
    for answer in (first, second):
        equal([result.index for result in answer.results], [1, 0])
        equal(answer.results[0].relevance_score > answer.results[1].relevance_score > 0, True)
    text = first.results[0].document
    equal(text and text.text, "A field of science.")


@case("Cohere's rerank", "asyncio, the first results only")
async def rerank_asyncio() -> None:
    answer = await AsyncClientV2(api_key="any", base_url=ranking()).rerank(**ASKED, top_n=1, max_tokens_per_doc=100)
    equal([result.index for result in answer.results], [1])


@case("Cohere's rerank", "errors")
def errors() -> None:
    with raising(BadRequestError, "`top_n` must be greater than or equal to 0"):
        ClientV2(api_key="any", base_url=ranking()).rerank(**ASKED, top_n=-1)
