"""LangChain's models of SageMaker's endpoints."""

import json
from typing import Any

import boto3
from langchain_aws import SagemakerEndpoint
from langchain_aws.chat_models.sagemaker_endpoint import ChatModelContentHandler, ChatSagemakerEndpoint
from langchain_aws.llms.sagemaker_endpoint import LLMContentHandler
from langchain_core.messages import AIMessage, AIMessageChunk

from tests.clients.programs.cases import case, equal, hello
from tests.clients.programs.values import ANSWER, QUESTION

PACKAGE = "langchain-aws"


class Generate(LLMContentHandler):  # type: ignore[misc]  # the package is not installed where types are checked
    content_type = "application/json"
    accepts = "application/json"

    def transform_input(self, prompt: str, model_kwargs: dict[str, Any]) -> bytes:
        return json.dumps({"inputs": prompt, "parameters": {"max_new_tokens": 64}, **model_kwargs}).encode()

    def transform_output(self, output: Any) -> str:
        found = json.loads(output if isinstance(output, bytes | str) else output.read())
        return str(found["token"]["text"] if "token" in found else found["generated_text"])


class Chat(ChatModelContentHandler):  # type: ignore[misc]
    content_type = "application/json"
    accepts = "application/json"

    def transform_input(self, prompt: Any, model_kwargs: dict[str, Any]) -> bytes:
        return json.dumps({"messages": prompt, "temperature": 0, **model_kwargs}).encode()

    def transform_output(self, output: Any) -> Any:
        found = json.loads(output if isinstance(output, bytes | str) else output.read())
        if "delta" in (choice := found["choices"][0]):
            return AIMessageChunk(content=choice["delta"].get("content") or "")
        return AIMessage(content=choice["message"]["content"])


def runtime() -> Any:
    return boto3.client("sagemaker-runtime", endpoint_url=hello())


@case("SageMaker", "answers")
def generate() -> None:
    model: Any = SagemakerEndpoint(endpoint_name="hello", client=runtime(), content_handler=Generate())
    equal(model.invoke(QUESTION), ANSWER)


@case("SageMaker", "streams")
def generate_stream() -> None:
    model: Any = SagemakerEndpoint(
        endpoint_name="hello",
        client=runtime(),
        content_handler=Generate(),
        streaming=True,
        model_kwargs={"stream": True},
    )
    equal("".join(model.stream(QUESTION)), ANSWER)


@case("SageMaker", "chats")
def chat() -> None:
    model: Any = ChatSagemakerEndpoint(endpoint_name="hello", client=runtime(), content_handler=Chat())
    equal(model.invoke(QUESTION).content, ANSWER)
