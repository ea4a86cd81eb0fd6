"""The AWS SDK's client of SageMaker's endpoints."""

import json
from typing import Any

import boto3

from tests.clients.programs.cases import adapted, case, equal, hello
from tests.clients.programs.values import ADAPTER, ANSWER, FIRST_TEXT, HELLO, MESSAGES, QUESTION

PACKAGE = "boto3"

PAYLOAD: dict[str, Any] = {"inputs": QUESTION, "parameters": {"max_new_tokens": 64}}


def invoke(payload: object, **options: Any) -> Any:
    runtime = boto3.client("sagemaker-runtime", endpoint_url=hello())
    return runtime.invoke_endpoint(
        EndpointName=HELLO, ContentType="application/json", Body=json.dumps(payload), **options
    )


@case("SageMaker", "answers")
def answer() -> None:
    equal(json.loads(invoke(PAYLOAD)["Body"].read()), {"generated_text": ANSWER})


@case("SageMaker", "chats")
def chat() -> None:
    found = json.loads(invoke({"messages": MESSAGES, "temperature": 0})["Body"].read())
    equal(found["choices"][0]["message"]["content"], ANSWER)


@case("SageMaker", "adapters")
def adapter() -> None:
    payload = PAYLOAD | {"parameters": {"max_new_tokens": 8}}
    found = invoke(payload, InferenceComponentName=ADAPTER)
    equal(json.loads(found["Body"].read()), {"generated_text": adapted()})


@case("SageMaker", "streams")
def stream() -> None:
    runtime = boto3.client("sagemaker-runtime", endpoint_url=hello())
    body = json.dumps(PAYLOAD | {"parameters": {"max_new_tokens": 4}, "stream": True})
    found = runtime.invoke_endpoint_with_response_stream(EndpointName=HELLO, ContentType="application/json", Body=body)
    written = b"".join(event["PayloadPart"]["Bytes"] for event in found["Body"])
    equal(json.loads(written.splitlines()[-1])["generated_text"], FIRST_TEXT)


@case("SageMaker", "errors")
def errors() -> None:
    runtime: Any = boto3.client("sagemaker-runtime", endpoint_url=hello())
    try:
        invoke({"inputs": "word " * 3000})
    except runtime.exceptions.ModelError as error:
        details = error.response
        equal(details["OriginalStatusCode"], 424)
        assert "2047" in details["OriginalMessage"], details
    except Exception as error:
        raise AssertionError(f"another error: {error!r}") from error
    else:
        raise AssertionError("a prompt beyond the context is taken")
