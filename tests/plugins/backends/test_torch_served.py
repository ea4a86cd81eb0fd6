"""The torch backend's parameters over HTTP: a tiny random model in a worker process."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from lmi_core.generation import coalescing
from lmi_core.texts.huggingface_tokenizer import APART
from tests.conftest import Answer, RunningServer, Serve
from tests.plugins.torch_engine.tiny_models import save_model, save_tokenizer

PROMPT = "Hello world"
SCHEMA = {"type": "object", "properties": {"answer": {"enum": ["yes", "no"]}}, "required": ["answer"]}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("models") / "tiny"
    save_tokenizer(directory)
    save_model(directory, "llama")
    (directory / "serving.properties").write_text("option.rolling_batch=torch\noption.max_stream_delay=1000\n")
    return directory


async def ask(server: RunningServer, **parameters: Any) -> Answer:
    return await server.post("/invocations", {"inputs": PROMPT, "parameters": {"details": True} | parameters})


async def test_parameters_over_http(directory: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    server = await serve(directory)
    guided = (await ask(server, guided_json=SCHEMA, max_new_tokens=60)).json()
    assert json.loads(guided["generated_text"])["answer"] in ("yes", "no")
    assert guided["details"]["finish_reason"] == "eos_token"

    refused = await ask(server, guided_regex="(a")
    assert refused.status == 424
    assert "`guided_regex` cannot be used: Regex parsing error" in refused.json()["error"]

    sampled = {"do_sample": True, "seed": 3, "max_new_tokens": 5}
    several = (await ask(server, n=3, **sampled)).json()
    texts = [each["generated_text"] for each in (several, *several["details"]["best_of_sequences"])]
    assert len(set(texts)) == 3
    best = (await ask(server, n=2, best_of=3, **sampled)).json()
    assert best["generated_text"] == several["generated_text"]
    (second,) = best["details"]["best_of_sequences"]
    others = several["details"]["best_of_sequences"]
    assert second == max(others, key=lambda other: sum(token["log_prob"] for token in other["tokens"]))

    details = (await ask(server, prompt_logprobs=1, logprobs=2, max_new_tokens=2, truncate=3)).json()["details"]
    assert ["top_tokens" in token for token in details["prefill"]] == [False, True, True]
    assert [len(token["top_tokens"]) for token in details["tokens"]] == [2, 2]

    body = {"inputs": PROMPT, "stream": True, "parameters": {"max_new_tokens": 60, "ignore_eos_token": True}}
    monkeypatch.setattr(coalescing, "MAX_UNDELAYED_STREAMS", 0)
    monkeypatch.setattr(coalescing, "SECONDS_PER_STREAM", 1)  # as of many streams, whose tokens gather
    async with server.client.post("/invocations", json=body) as response:
        reads = [data async for data in response.content.iter_any()]
    assert b"".join(reads).count(b"\n") == 60
    assert len(reads) < 30

    completion = {"prompt": PROMPT, "n": 2, "seed": 3, "max_tokens": 4, "stream": True}
    events = (await server.post("/v1/completions", completion)).body.split(b"\n\n")
    choices = [json.loads(event[len(b"data: ") :])["choices"][0] for event in events if event.startswith(b"data: {")]
    assert {choice["index"] for choice in choices} == {0, 1}
    assert [choice["finish_reason"] for choice in choices].count("length") == 2

    await check_description(server)
    with monkeypatch.context() as no_process:
        no_process.setattr(subprocess, "Popen", None)
        await check_long_text(server)


async def check_long_text(server: RunningServer) -> None:
    """Check that the process for long texts is not started by the server, whose threads would all wait."""
    answer = await server.post("/tokenize", {"prompt": "a " * APART})
    assert answer.json()["count"] >= APART


async def check_description(server: RunningServer) -> None:
    """Check what is told of the engine's process, which is not the server's."""
    (workflow,) = (await server.get(f"/models/{server.model.name}")).json()
    (group,) = workflow["models"][0]["workerGroups"]
    (worker,) = group["workers"]
    assert [worker["processId"]] == list(server.model.runtime.process_ids())
    assert worker["processId"] != os.getpid()
    assert worker["memoryUsage"] > 50 << 20  # with PyTorch


async def test_lmis_asynchronous_mode(directory: Path, serve: Serve, tmp_path: Path) -> None:
    asynchronous = Path(shutil.copytree(directory, tmp_path / "asynchronous"))
    with (asynchronous / "serving.properties").open("a") as properties:
        properties.write("option.async_mode=true\n")
    server = await serve(asynchronous)
    whole = (await ask(server, do_sample=False, max_new_tokens=3, decoder_input_details=True)).json()
    body = {"inputs": PROMPT, "parameters": {"details": True, "do_sample": False, "max_new_tokens": 3}, "stream": True}
    lines = (await server.post("/invocations", body)).json_lines()
    assert [line["token"]["id"] for line in lines] == [token["id"] for token in whole["details"]["tokens"]]
    assert lines[-1]["generated_text"] == whole["generated_text"]
    assert lines[-1]["details"]["input_length"] == len(whole["details"]["prefill"]) + 1
    completion = {"prompt": PROMPT, "max_tokens": 3, "temperature": 0}
    (choice,) = (await server.post("/invocations", completion)).json()["choices"]
    assert choice["text"] == whole["generated_text"]
