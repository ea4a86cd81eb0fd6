"""huggingface_hub's client, unmodified: TGI's native routes, and `/invocations` with `option.tgi_compat`."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from huggingface_hub import InferenceClient, TextGenerationOutput, TextGenerationStreamOutput
from huggingface_hub.errors import GenerationError, HfHubHTTPError, OverloadedError, ValidationError

from lmi_plugins.backends.scripted import Script
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve

WORDS = ["Deep", " Learning", " is", " a", " really", " cool", " field."]
TEXT = "".join(WORDS)
PROMPT = "What is Deep Learning?"
TGI_ROUTES = ["/", "/generate"]
TGI_STREAMS = ["/", "/generate_stream"]

T = TypeVar("T")


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    properties = "option.tgi_compat=true\njob_queue_size=1\noption.max_rolling_batch_size=1\n"
    return await serve(model_dir({"serving.properties": SCRIPTED + properties}))


async def ask(server: RunningServer, path: str, use: Callable[[InferenceClient], T]) -> T:
    """The client blocks, so it runs beside the server's event loop."""

    def run() -> T:
        with InferenceClient(model=server.server.url + path, timeout=60) as client:
            return use(client)

    return await asyncio.to_thread(run)


async def generate(server: RunningServer, path: str, **parameters: Any) -> str:
    return await ask(server, path, lambda client: client.text_generation(PROMPT, **parameters))


async def details(server: RunningServer, path: str, **parameters: Any) -> TextGenerationOutput:
    return await ask(server, path, lambda client: client.text_generation(PROMPT, details=True, **parameters))


async def stream(server: RunningServer, path: str, **parameters: Any) -> list[str]:
    return await ask(server, path, lambda client: list(client.text_generation(PROMPT, stream=True, **parameters)))


async def detailed_stream(server: RunningServer, path: str, **parameters: Any) -> list[TextGenerationStreamOutput]:
    def use(client: InferenceClient) -> list[TextGenerationStreamOutput]:
        return list(client.text_generation(PROMPT, stream=True, details=True, **parameters))

    return await ask(server, path, use)


async def test_chat_without_a_model_s_name(server: RunningServer) -> None:
    messages = [{"role": "user", "content": PROMPT}]
    answer = await ask(server, "", lambda client: client.chat_completion(messages))
    assert (answer.model, answer.choices[0].message.content) == ("model", TEXT)


@pytest.mark.parametrize("path", [*TGI_ROUTES, "/invocations"])
async def test_whole(server: RunningServer, path: str) -> None:
    assert await generate(server, path) == TEXT
    assert await generate(server, path, max_new_tokens=2) == "Deep Learning"
    assert await generate(server, path, return_full_text=True) == PROMPT + TEXT


@pytest.mark.parametrize("path", [*TGI_STREAMS, "/invocations"])
async def test_stream(server: RunningServer, path: str) -> None:
    assert await stream(server, path) == WORDS


@pytest.mark.parametrize("path", [*TGI_ROUTES, "/invocations"])
async def test_details(server: RunningServer, path: str) -> None:
    output = await details(server, path, max_new_tokens=2, decoder_input_details=True, do_sample=True, seed=7)
    found = output.details
    assert found is not None
    assert (output.generated_text, found.finish_reason, found.generated_tokens) == ("Deep Learning", "length", 2)
    assert [(token.text, token.logprob, token.special) for token in found.tokens] == [
        ("Deep", -0.25, False),
        (" Learning", -0.25, False),
    ]
    assert "".join(token.text for token in found.prefill) == PROMPT
    assert found.seed == 7


@pytest.mark.parametrize("path", [*TGI_STREAMS, "/invocations"])
async def test_details_of_a_stream(server: RunningServer, path: str) -> None:
    *outputs, last = await detailed_stream(server, path, max_new_tokens=3, do_sample=True, seed=7)
    assert [output.token.text for output in [*outputs, last]] == WORDS[:3]
    assert [output.index for output in [*outputs, last]] == [1, 2, 3]
    assert all(output.details is None and output.generated_text is None for output in outputs)
    assert last.details is not None
    assert (last.generated_text, last.details.finish_reason) == ("Deep Learning is", "length")
    assert (last.details.generated_tokens, last.details.input_length, last.details.seed) == (3, 4, 7)


@pytest.mark.parametrize("path", ["/", "/generate", "/invocations"])
async def test_stop(server: RunningServer, path: str) -> None:
    output = await details(server, path, stop=[" a"])
    assert output.details is not None
    assert (output.generated_text, output.details.finish_reason) == ("Deep Learning is", "stop_sequence")


@pytest.mark.parametrize("path", [*TGI_ROUTES, "/invocations"])
async def test_every_parameter_of_the_client(server: RunningServer, path: str) -> None:
    output = await details(
        server,
        path,
        best_of=2,
        do_sample=True,
        frequency_penalty=0.5,
        grammar={"type": "regex", "value": "a+"},
        max_new_tokens=2,
        repetition_penalty=1.1,
        seed=7,
        temperature=0.5,
        top_k=5,
        top_n_tokens=2,
        top_p=0.5,
        truncate=2,
        typical_p=0.5,
        watermark=False,
    )
    assert output.details is not None
    assert output.details.best_of_sequences is not None
    top_tokens: Any = output.details.top_tokens  # typed as objects, but the client leaves them as they came
    assert [token["text"] for token in top_tokens[0]] == WORDS[:2]


@pytest.mark.parametrize("path", [*TGI_ROUTES, "/invocations"])
async def test_sampling_by_the_temperature_alone(server: RunningServer, path: str) -> None:
    for parameters, samples in (({"temperature": 0.7}, True), ({"do_sample": False, "top_p": 0.9}, True), ({}, False)):
        assert await generate(server, path, **parameters) == TEXT
        assert server.scripted.history[-1].parameters.do_sample is samples


@pytest.mark.parametrize("path", [*TGI_ROUTES, "/invocations"])
async def test_adapter_that_there_is_not(server: RunningServer, path: str) -> None:
    with pytest.raises((HfHubHTTPError, ValidationError), match="there is no adapter `french`"):
        await generate(server, path, adapter_id="french")
    assert server.scripted.history == []


@pytest.mark.parametrize("path", TGI_ROUTES)
async def test_validation_error(server: RunningServer, path: str) -> None:
    with pytest.raises(ValidationError, match="`top_p` must be less than or equal to 1"):
        await generate(server, path, top_p=2)


@pytest.mark.parametrize("path", TGI_ROUTES)
async def test_generation_error(server: RunningServer, path: str) -> None:
    server.scripted.enqueue(Script("one", error="the engine fell over"))
    with pytest.raises(GenerationError, match="the engine fell over"):
        await generate(server, path)


@pytest.mark.parametrize("path", TGI_ROUTES)
async def test_overloaded(server: RunningServer, path: str) -> None:
    scripts = [Script("one", hold=True), Script("one", hold=True)]
    server.scripted.enqueue(*scripts)
    waiting = [asyncio.create_task(server.post("/generate", {"inputs": PROMPT})) for _ in scripts]
    await asyncio.gather(*(script.started.wait() for script in scripts))
    with pytest.raises(OverloadedError):
        await generate(server, path)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*(script.closed.wait() for script in scripts))


@pytest.mark.parametrize("path", [*TGI_STREAMS, "/invocations"])
async def test_error_within_a_stream(server: RunningServer, path: str) -> None:
    server.scripted.enqueue(Script("one two", error="the engine fell over"))
    with pytest.raises(GenerationError, match="the engine fell over"):
        await stream(server, path)


async def test_tgi_compat_errors(server: RunningServer) -> None:
    with pytest.raises(ValidationError, match="`top_p` must be less than or equal to 1"):
        await ask(server, "/invocations", lambda client: client.text_generation(PROMPT, top_p=2))


async def test_tgi_compat_error_of_a_stream_before_it_begins(server: RunningServer) -> None:
    with pytest.raises(HfHubHTTPError, match="424"):
        await stream(server, "/invocations", top_p=2)
