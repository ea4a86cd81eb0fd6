"""Triton's client, over HTTP and gRPC."""

import queue
from typing import Any

import numpy
import tritonclient.grpc as grpc_client
import tritonclient.http as http_client

from tests.clients.programs.cases import case, equal, hello, hello_grpc, raising
from tests.clients.programs.values import ANSWER, HELLO, QUESTION

PACKAGE = "tritonclient"


def inputs(protocol: Any, **tensors: Any) -> list[Any]:
    found = []
    for name, value in tensors.items():
        datatype, kind = ("BYTES", object) if isinstance(value, str) else ("INT32", numpy.int32)
        tensor = protocol.InferInput(name, [1], "BOOL" if isinstance(value, bool) else datatype)
        array = numpy.array([value], dtype=bool if isinstance(value, bool) else kind)
        tensor.set_data_from_numpy(array)
        found.append(tensor)
    return found


def text(result: Any) -> str:
    return str(result.as_numpy("text_output")[0].decode())


@case("KServe v2 over HTTP", "answers")
def infer() -> None:
    tensors = inputs(http_client, text_input=QUESTION, max_tokens=64, exclude_input_in_output=True)
    with http_client.InferenceServerClient(hello().removeprefix("http://")) as client:
        result = client.infer(HELLO, tensors)
    equal((text(result), result.get_response()["model_name"]), (ANSWER, HELLO))


@case("KServe v2 over HTTP", "readiness and metadata")
def metadata() -> None:
    with http_client.InferenceServerClient(hello().removeprefix("http://")) as client:
        equal((client.is_server_live(), client.is_server_ready(), client.is_model_ready(HELLO)), (True,) * 3)
        found = client.get_model_metadata(HELLO)
    equal((found["name"], found["outputs"][0]["name"]), (HELLO, "text_output"))


@case("KServe v2 over HTTP", "errors")
def errors() -> None:
    tensors = inputs(http_client, text_input="word " * 3000, max_tokens=4)
    with (
        http_client.InferenceServerClient(hello().removeprefix("http://")) as client,
        raising(http_client.InferenceServerException, "2047"),
    ):
        client.infer(HELLO, tensors)


@case("KServe v2 over gRPC", "answers")
def grpc_infer() -> None:
    with grpc_client.InferenceServerClient(hello_grpc()) as client:
        tensors = inputs(grpc_client, text_input=QUESTION, max_tokens=64, exclude_input_in_output=True)
        equal(text(client.infer(HELLO, tensors)), ANSWER)


@case("KServe v2 over gRPC", "streams")
def grpc_stream() -> None:
    answers: queue.Queue[Any] = queue.Queue()
    with grpc_client.InferenceServerClient(hello_grpc()) as client:
        client.start_stream(callback=lambda result, error: answers.put((result, error)))
        tensors = inputs(grpc_client, text_input=QUESTION, max_tokens=64, stream=True)
        client.async_stream_infer(HELLO, tensors, enable_empty_final_response=True)
        texts, final = [], False
        while not final:
            result, error = answers.get(timeout=30)
            equal(error, None)
            response = result.get_response()
            final = response.parameters["triton_final_response"].bool_param
            texts.append(text(result) if response.outputs else "")
        client.stop_stream()
    equal("".join(texts), ANSWER)


@case("KServe v2 over gRPC", "readiness and metadata")
def grpc_metadata() -> None:
    with grpc_client.InferenceServerClient(hello_grpc()) as client:
        equal((client.is_server_live(), client.is_server_ready(), client.is_model_ready(HELLO)), (True,) * 3)
        equal(client.get_model_metadata(HELLO).name, HELLO)
