"""boto3's client of SageMaker's runtime, unmodified, with this server as its endpoint."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any

import boto3
import pytest
import pytest_asyncio
from botocore.config import Config
from botocore.exceptions import ClientError, EventStreamError
from types_boto3_sagemaker_runtime import SageMakerRuntimeClient
from types_boto3_sagemaker_runtime.type_defs import InvokeEndpointWithResponseStreamOutputTypeDef

from lmi_plugins.backends.scripted import Script
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve

SCRIPTS = Path(__file__).parents[1] / "model_scripts"
TEXT = "Deep Learning is a really cool field."
WORDS = ["Deep", " Learning", " is", " a", " really", " cool", " field."]
INPUTS = {"inputs": "What is Deep Learning?"}
CHAT = {"messages": [{"role": "user", "content": "What is Deep Learning?"}]}
STREAM = {"stream": True}
FORMATTER = """\
from djl_python.output_formatter import output_formatter


@output_formatter
def change(response_data: dict) -> dict:
    return response_data | {"by": "NAME"}
"""


class Endpoint:
    """The client; each call in a thread, as the server runs in this one."""

    def __init__(self, client: SageMakerRuntimeClient) -> None:
        self.client = client

    async def invoke(self, payload: object, **arguments: Any) -> tuple[str, Any]:
        """The content type and the JSON of a whole answer."""

        def call() -> tuple[str, Any]:
            answer = self.client.invoke_endpoint(
                EndpointName="mine", Body=json.dumps(payload), ContentType="application/json", **arguments
            )
            return answer["ContentType"], json.loads(answer["Body"].read())

        return await asyncio.to_thread(call)

    async def stream(self, payload: object, **arguments: Any) -> tuple[str, list[bytes]]:
        """The content type and the parts of a streamed answer."""

        def call() -> tuple[str, list[bytes]]:
            answer = self.begin(payload, **arguments)
            return answer["ContentType"], [event["PayloadPart"]["Bytes"] for event in answer["Body"]]

        return await asyncio.to_thread(call)

    async def failing_stream(self, payload: object) -> tuple[list[bytes], EventStreamError]:
        """The parts before the error, and the error."""

        def call() -> tuple[list[bytes], EventStreamError]:
            parts: list[bytes] = []
            with closing(self.begin(payload)["Body"]) as body, pytest.raises(EventStreamError) as raised:
                parts.extend(event["PayloadPart"]["Bytes"] for event in body)  # also those before the error
            return parts, raised.value

        return await asyncio.to_thread(call)

    def begin(self, payload: object, **arguments: Any) -> InvokeEndpointWithResponseStreamOutputTypeDef:
        return self.client.invoke_endpoint_with_response_stream(
            EndpointName="mine", Body=json.dumps(payload), ContentType="application/json", **arguments
        )


EndpointOf = Callable[[RunningServer], Endpoint]
ServeFiles = Callable[[dict[str, str]], Awaitable[Endpoint]]


@pytest_asyncio.fixture
async def endpoint_of() -> AsyncIterator[EndpointOf]:
    async with AsyncExitStack() as stack:

        def connect(server: RunningServer) -> Endpoint:
            client = boto3.client(
                "sagemaker-runtime",
                endpoint_url=server.server.url,
                region_name="eu-west-1",
                aws_access_key_id="any",
                aws_secret_access_key="any",
                config=Config(retries={"total_max_attempts": 1}),
            )
            stack.enter_context(closing(client))
            return Endpoint(client)

        yield connect


@pytest.fixture
def serve_files(serve: Serve, model_dir: ModelDirectory, endpoint_of: EndpointOf) -> ServeFiles:
    async def start(files: dict[str, str]) -> Endpoint:
        return endpoint_of(await serve(model_dir({"serving.properties": SCRIPTED, **files})))

    return start


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    properties = "job_queue_size=1\noption.max_rolling_batch_size=1\n"
    return await serve(model_dir({"serving.properties": SCRIPTED + properties}))


@pytest.fixture
def endpoint(server: RunningServer, endpoint_of: EndpointOf) -> Endpoint:
    return endpoint_of(server)


async def test_inputs(endpoint: Endpoint) -> None:
    assert await endpoint.invoke(INPUTS) == ("application/json", {"generated_text": TEXT})


async def test_chat(endpoint: Endpoint) -> None:
    content_type, answer = await endpoint.invoke(CHAT)
    assert content_type == "application/json"
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": TEXT}
    assert answer["choices"][0]["finish_reason"] == "eos_token"


async def test_stream_of_inputs(endpoint: Endpoint) -> None:
    content_type, parts = await endpoint.stream(INPUTS | STREAM)
    assert content_type == "application/jsonlines"
    lines = [json.loads(part) for part in parts]
    assert [line["token"]["text"] for line in lines] == WORDS
    assert lines[-1]["generated_text"] == TEXT


async def test_stream_of_a_chat(endpoint: Endpoint) -> None:
    content_type, parts = await endpoint.stream(CHAT | STREAM)
    assert content_type == "application/jsonlines"
    choices = [json.loads(part)["choices"][0] for part in parts]
    assert "".join(choice["delta"].get("content", "") for choice in choices) == TEXT
    assert choices[-1]["finish_reason"] == "eos_token"


async def test_whole_answer_where_the_body_does_not_ask_for_a_stream(endpoint: Endpoint) -> None:
    content_type, (part,) = await endpoint.stream(INPUTS)
    assert (content_type, json.loads(part)) == ("application/json", {"generated_text": TEXT})


async def test_parts_come_as_they_are_generated(server: RunningServer, endpoint: Endpoint) -> None:
    script = Script("one two", hold=True)
    server.scripted.enqueue(script)

    def first_two() -> list[str]:
        with closing(endpoint.begin(INPUTS | STREAM)["Body"]) as body:
            events = iter(body)
            return [json.loads(next(events)["PayloadPart"]["Bytes"])["token"]["text"] for _ in range(2)]

    assert await asyncio.to_thread(first_two) == ["one", " two"]
    await script.closed.wait()


async def test_bad_parameter(server: RunningServer, endpoint: Endpoint) -> None:
    payload = INPUTS | {"parameters": {"temperature": -1}}
    original = (await server.post("/invocations", payload)).body.decode()
    with pytest.raises(endpoint.client.exceptions.ModelError) as raised:
        await endpoint.invoke(payload)
    response: dict[str, Any] = {**raised.value.response}
    assert (response["OriginalStatusCode"], response["OriginalMessage"]) == (424, original)
    assert response["Error"] == {
        "Code": "ModelError",
        "Message": "`temperature` must be greater than or equal to 0. Given: -1",
    }


async def test_engine_that_fails_before_the_first_part(server: RunningServer, endpoint: Endpoint) -> None:
    server.scripted.enqueue(Script("", error="the engine fell over"))
    with pytest.raises(endpoint.client.exceptions.ModelError, match="the engine fell over") as raised:
        await endpoint.stream(INPUTS | STREAM)
    assert {**raised.value.response}["OriginalStatusCode"] == 500


async def test_engine_that_fails_within_a_stream(server: RunningServer, endpoint: Endpoint) -> None:
    server.scripted.enqueue(Script("one", error="the engine fell over"))
    (_, last), error = await endpoint.failing_stream(INPUTS | STREAM)
    assert json.loads(last)["details"]["finish_reason"] == "error"
    assert error.response["Error"] == {"Code": "InternalStreamFailure", "Message": "the engine fell over"}


async def test_engine_that_stops_answering_within_a_stream(
    serve: Serve, model_dir: ModelDirectory, endpoint_of: EndpointOf
) -> None:
    server = await serve(model_dir({"serving.properties": f"{SCRIPTED}option.inter_token_timeout=0.05\n"}))
    server.scripted.enqueue(Script("one", hold=True))
    _, error = await endpoint_of(server).failing_stream(INPUTS | STREAM)
    assert error.response["Error"]["Code"] == "ModelStreamError"


async def test_full_queue(server: RunningServer, endpoint: Endpoint) -> None:
    scripts = [Script("one", hold=True), Script("one", hold=True)]
    server.scripted.enqueue(*scripts)
    waiting = [asyncio.create_task(server.post("/invocations", INPUTS)) for _ in scripts]
    await asyncio.gather(*(script.started.wait() for script in scripts))
    with pytest.raises(endpoint.client.exceptions.ServiceUnavailable, match="has 2 requests in its queue"):
        await endpoint.invoke(INPUTS)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_target_model(serve: Serve, model_dir: ModelDirectory, endpoint_of: EndpointOf) -> None:
    for name in ("one", "two"):
        properties = f"{SCRIPTED}option.scripted_text={name}\n"
        store = model_dir({"serving.properties": properties}, name=f"store/{name}").parent
    endpoint = endpoint_of(await serve(store))
    assert (await endpoint.invoke(INPUTS, TargetModel="two"))[1] == {"generated_text": "two"}
    assert (await endpoint.invoke(INPUTS | {"model": "one"}))[1] == {"generated_text": "one"}
    with pytest.raises(ClientError, match="model `three` is not served") as raised:
        await endpoint.invoke(INPUTS, TargetModel="three")
    assert raised.value.response["Error"].get("Code") == "ValidationError"


async def test_inference_component(serve_files: ServeFiles) -> None:
    endpoint = await serve_files({"model.py": FORMATTER, "adapters/french/model.py": FORMATTER.replace("NAME", "it")})
    adapted = await endpoint.invoke(INPUTS, InferenceComponentName="french")
    base = await endpoint.invoke(INPUTS, InferenceComponentName="model")
    assert (adapted[1]["by"], base[1]["by"]) == ("it", "NAME")
    unknown = await endpoint.invoke(INPUTS, InferenceComponentName="my-base-component")
    assert unknown[1]["by"] == "NAME"


async def test_inference_component_where_parameters_are_strict(serve_files: ServeFiles) -> None:
    properties = f"{SCRIPTED}option.strict_parameters=true\n"
    files = {"serving.properties": properties, "adapters/french/model.py": FORMATTER}
    endpoint = await serve_files(files)
    with pytest.raises(endpoint.client.exceptions.ModelError, match=r"there is no adapter `german`\. Known: french"):
        await endpoint.invoke(INPUTS, InferenceComponentName="german")


@pytest.mark.parametrize("argument", ["InferenceComponentName", "TargetVariant"])
async def test_parts_of_an_endpoint_that_are_models(
    serve: Serve, model_dir: ModelDirectory, endpoint_of: EndpointOf, argument: str
) -> None:
    for name in ("one", "two"):
        properties = f"{SCRIPTED}option.scripted_text={name}\n"
        files = {"serving.properties": properties, f"adapters/of-{name}/model.py": FORMATTER.replace("NAME", name)}
        store = model_dir(files, name=f"store/{name}").parent
    endpoint = endpoint_of(await serve(store))
    for name in ("one", "two"):
        assert (await endpoint.invoke(INPUTS, **{argument: name}))[1] == {"generated_text": name}
    with pytest.raises(ClientError, match="model `three` is not served"):
        await endpoint.invoke(INPUTS, **{argument: "three"})
    adapted = await endpoint.invoke(INPUTS, TargetModel="two", InferenceComponentName="of-two")
    assert adapted[1]["by"] == "two"
    assert (await endpoint.invoke(INPUTS, InferenceComponentName="of-one"))[1]["by"] == "one"


async def test_target_variant(endpoint: Endpoint) -> None:
    def call() -> list[str]:
        arguments = {"EndpointName": "mine", "ContentType": "application/json", "TargetVariant": "blue"}
        whole = endpoint.client.invoke_endpoint(Body=json.dumps(INPUTS), **arguments)
        stream = endpoint.client.invoke_endpoint_with_response_stream(Body=json.dumps(INPUTS | STREAM), **arguments)
        whole["Body"].read()
        list(stream["Body"])
        return [whole["InvokedProductionVariant"], stream["InvokedProductionVariant"]]

    assert await asyncio.to_thread(call) == ["blue", "blue"]


@pytest.mark.parametrize("name", ["TargetContainerHostname", "EnableExplanations"])
async def test_what_an_endpoint_would_do_and_this_server_cannot(endpoint: Endpoint, name: str) -> None:
    with pytest.raises(
        endpoint.client.exceptions.ModelError, match=f"`{name}` is not supported: this server is a single container"
    ):
        await endpoint.invoke(INPUTS, **{name: "blue"})


async def test_asynchronous_calls_are_refused(endpoint: Endpoint) -> None:
    def call() -> None:
        endpoint.client.invoke_endpoint_async(EndpointName="mine", InputLocation="s3://bucket/request.json")

    with pytest.raises(ClientError, match="asynchronous calls need SageMaker") as raised:
        await asyncio.to_thread(call)
    assert raised.value.response["Error"].get("Code") == "ValidationError"


async def test_plain_text(endpoint: Endpoint) -> None:
    def call() -> Any:
        answer = endpoint.client.invoke_endpoint(EndpointName="mine", Body=b"What is it?", ContentType="text/plain")
        return json.loads(answer["Body"].read())

    assert await asyncio.to_thread(call) == {"generated_text": TEXT}


async def test_formatter_of_the_model_s_own(serve_files: ServeFiles) -> None:
    endpoint = await serve_files({"model.py": FORMATTER})
    _, parts = await endpoint.stream(INPUTS | STREAM)
    assert [json.loads(part)["by"] for part in parts] == ["NAME"] * len(WORDS)


async def test_handle_function(serve: Serve, model_dir: ModelDirectory, endpoint_of: EndpointOf) -> None:
    directory = model_dir({"serving.properties": ""})
    shutil.copytree(SCRIPTS / "echo_handler", directory, dirs_exist_ok=True)
    endpoint = endpoint_of(await serve(directory))
    content_type, parts = await endpoint.stream({"what": "stream", "text": "one two"})
    assert content_type == "application/jsonlines"
    assert [json.loads(part) for part in parts] == [{"outputs": "one"}, {"outputs": "two"}]
    with pytest.raises(endpoint.client.exceptions.ModelError) as raised:
        await endpoint.stream({"what": "error"})
    assert {**raised.value.response}["OriginalStatusCode"] == 418
    parts, error = await endpoint.failing_stream({"what": "stream", "text": "one two!"})
    assert json.loads(parts[-1])["code"] == 424
    assert "the end is too loud" in error.response["Error"]["Message"]
