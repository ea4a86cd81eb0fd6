"""SageMaker's SDK, version 3, whose endpoints take the place of version 2's predictors."""

import json
import os
from typing import Any

import boto3

from tests.clients.programs.cases import case, equal, fault, hello, raising
from tests.clients.programs.values import ANSWER, HELLO, MESSAGES, QUESTION

os.environ["AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME"] = hello()  # read by boto3, on which the SDK is built

from sagemaker.core.deserializers import JSONDeserializer
from sagemaker.core.resources import Endpoint
from sagemaker.core.serializers import JSONSerializer

PACKAGE = "sagemaker-core"

PAYLOAD = {"inputs": QUESTION, "parameters": {"max_new_tokens": 64}}


def endpoint(**options: Any) -> Any:
    return Endpoint(endpoint_name=HELLO, **options)


@case("SageMaker", "answers")
def invoke() -> None:
    answer = endpoint().invoke(json.dumps(PAYLOAD), content_type="application/json")
    equal((json.loads(answer.body.read()), answer.content_type), ({"generated_text": ANSWER}, "application/json"))


@case("SageMaker", "its serializers")
def serialized() -> None:
    asked = endpoint(serializer=JSONSerializer(), deserializer=JSONDeserializer())
    equal(asked.invoke(PAYLOAD, content_type="application/json").body, {"generated_text": ANSWER})


@case("SageMaker", "chats")
def chat() -> None:
    asked = endpoint(serializer=JSONSerializer(), deserializer=JSONDeserializer())
    answer = asked.invoke({"messages": MESSAGES, "temperature": 0}, content_type="application/json").body
    equal(answer["choices"][0]["message"]["content"], ANSWER)


@fault(
    "SageMaker",
    "`invoke_with_response_stream` fails where it reads the answer, as it takes the stream for a dictionary.",
    "Stream with boto3's `invoke_endpoint_with_response_stream`.",
)
def stream() -> None:
    asked: Any = {"ContentType": "application/json", "Body": json.dumps(PAYLOAD | {"stream": True})}
    with raising(AttributeError, "EventStream"):
        endpoint().invoke_with_response_stream(asked["Body"], content_type=asked["ContentType"])
    answer = boto3.client("sagemaker-runtime").invoke_endpoint_with_response_stream(EndpointName=HELLO, **asked)
    lines = b"".join(event["PayloadPart"]["Bytes"] for event in answer["Body"]).splitlines()
    equal("".join(json.loads(line)["token"]["text"] for line in lines), ANSWER)
