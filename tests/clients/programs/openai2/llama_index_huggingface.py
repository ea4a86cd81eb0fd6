"""LlamaIndex's model of Hugging Face's inference clients."""

from typing import Any

from llama_index.core.base.llms.types import ChatMessage
from llama_index.llms.huggingface_api import HuggingFaceInferenceAPI

from tests.clients.programs.cases import case, equal, hello
from tests.clients.programs.values import ANSWER, QUESTION

PACKAGE = "llama-index-llms-huggingface-api"


def model(task: str) -> Any:
    return HuggingFaceInferenceAPI(model=hello(), token="any", task=task, temperature=0.01, num_output=64)


@case("OpenAI chats", "answers")
def chat() -> None:
    equal(model("conversational").chat([ChatMessage(role="user", content=QUESTION)]).message.content, ANSWER)


@case("OpenAI chats", "streams")
def chat_stream() -> None:
    chunks = model("conversational").stream_chat([ChatMessage(role="user", content=QUESTION)])
    equal("".join(chunk.delta or "" for chunk in chunks), ANSWER)


@case("TGI", "answers")
def generate() -> None:
    equal(model("text-generation").complete(QUESTION).text, ANSWER)


@case("TGI", "streams")
def generate_stream() -> None:
    equal("".join(chunk.delta for chunk in model("text-generation").stream_complete(QUESTION)), ANSWER)
