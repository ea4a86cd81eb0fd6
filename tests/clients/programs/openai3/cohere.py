"""Cohere's own client, for rerankers and embeddings."""

from typing import Any

from cohere import (
    AsyncClientV2,
    BadRequestError,
    Client,
    ClientV2,
    EmbeddingsByTypeEmbedResponse,
    EmbeddingsFloatsEmbedResponse,
)

from tests.clients.programs.cases import case, equal, hello, raising, ranking
from tests.clients.programs.values import HELLO, RANKING, TEXTS

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


@case("Cohere's embeddings", "vectors by type with both versions of the API")
def embed() -> None:
    asked: dict[str, Any] = {"model": HELLO, "input_type": "search_query", "embedding_types": ["float", "ubinary"]}
    second = ClientV2(api_key="any", base_url=hello()).embed(texts=TEXTS, **asked, truncate="START")
    first = Client(api_key="any", base_url=hello()).embed(texts=TEXTS * 50, **asked)  # two batches
    if not isinstance(first, EmbeddingsByTypeEmbedResponse):
        raise AssertionError(first)
    vectors, bits = second.embeddings.float_ or [], second.embeddings.ubinary or []
    equal(first.embeddings.float_, vectors * 50)
    equal((len(first.texts or []), second.texts), (150, TEXTS))
    equal([len(each) * 8 for each in bits], [len(each) for each in vectors])
    equal(bits[0][0] >> 7, int(vectors[0][0] >= 0))


@case("Cohere's embeddings", "numbers alone with the first version")
def embed_numbers() -> None:
    answer = Client(api_key="any", base_url=hello()).embed(texts=TEXTS, model=HELLO)
    if not isinstance(answer, EmbeddingsFloatsEmbedResponse):
        raise AssertionError(answer)
    equal(len(answer.embeddings), len(TEXTS))


@case("Cohere's embeddings", "asyncio and inputs of several texts")
async def embed_asyncio() -> None:
    inputs = [{"content": [{"type": "text", "text": text} for text in TEXTS]}]
    client = AsyncClientV2(api_key="any", base_url=hello())
    answer = await client.embed(model=HELLO, input_type="clustering", inputs=inputs)
    equal(len(answer.embeddings.float_ or []), 1)


@case("Cohere's embeddings", "errors")
def embed_errors() -> None:
    with raising(BadRequestError, "`texts.0` must be at most"):
        client = ClientV2(api_key="any", base_url=hello())
        client.embed(model=HELLO, input_type="clustering", texts=["a " * 9000], truncate="NONE")
