"""`lmi serve examples/hello`: a real model on the torch backend, asked over HTTP."""

import asyncio
import json
import random
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest
import pytest_asyncio
from huggingface_hub import AsyncInferenceClient

from tests.command_lines import workers_of
from tests.lmi_process import LmiProcess, lmi_serve

HELLO = Path(__file__).parents[2] / "examples" / "hello"
IMPORTS = """\
import aiohttp, pydantic, time, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
print(time.process_time())
"""
QUESTIONS: list[dict[str, str]] = json.loads((HELLO / "questions.json").read_text())

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass(frozen=True)
class Hello:
    server: LmiProcess
    client: aiohttp.ClientSession
    start_seconds: float

    async def ask(self, inputs: str, stream: bool = False, **parameters: Any) -> dict[str, Any]:
        """The whole answer; of a stream the last line, with the texts of all its tokens as `texts`."""
        body = {"inputs": inputs, "stream": stream, "parameters": {"max_new_tokens": 100, "details": True} | parameters}
        async with self.client.post("/invocations", json=body) as response:
            assert response.status == 200, await response.text()
            lines = [json.loads(line) for line in (await response.read()).splitlines()]
        if stream:
            lines[-1]["texts"] = [line["token"]["text"] for line in lines]
        answer: dict[str, Any] = lines[-1]
        return answer

    @property
    def worker(self) -> psutil.Process:
        (worker,) = workers_of(psutil.Process(self.server.process.pid))
        return worker


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hello() -> AsyncIterator[Hello]:
    async with lmi_serve(HELLO, "--port", 0, forked=False) as server:  # whose start is measured
        url = await server.ready()
        process = psutil.Process(server.process.pid)
        started = sum(sum(each.cpu_times()[:2]) for each in (process, *process.children(recursive=True)))
        log = asyncio.create_task(server.line_with("no line is like this"))  # keep the pipe empty
        async with aiohttp.ClientSession(url, timeout=aiohttp.ClientTimeout(60)) as client:
            yield Hello(server, client, started)
        server.process.send_signal(signal.SIGTERM)
        assert await server.process.wait() == 0
        with pytest.raises(AssertionError):
            await log
        assert "shutting down" in server.log[-1]


async def test_ready_soon_after_its_libraries_are_imported(hello: Hello) -> None:
    """Loading adds little to what importing them takes, which is most of a start's processor time on any machine."""
    importing = await asyncio.create_subprocess_exec(sys.executable, "-c", IMPORTS, stdout=asyncio.subprocess.PIPE)
    printed, _ = await importing.communicate()
    assert hello.start_seconds < 4 * float(printed)


async def test_every_question_is_answered(hello: Hello) -> None:
    answers = await asyncio.gather(*(hello.ask(pair["question"]) for pair in QUESTIONS))
    assert [answer["generated_text"] for answer in answers] == [pair["answer"] for pair in QUESTIONS]
    assert {answer["details"]["finish_reason"] for answer in answers} == {"eos_token"}


async def test_a_story(hello: Hello) -> None:
    answer = await hello.ask("Tell me a story.", max_new_tokens=500)
    assert answer["generated_text"].count(".") >= 6
    assert answer["details"]["finish_reason"] == "eos_token"


async def test_streams_say_the_same_in_whole_characters(hello: Hello) -> None:
    for pair in QUESTIONS:
        if not pair["answer"].isascii():
            answer = await hello.ask(pair["question"], stream=True)
            assert "".join(answer["texts"]) == answer["generated_text"] == pair["answer"]
            assert not any("\ufffd" in text for text in answer["texts"])


async def test_a_prompt_that_looks_cut_off_is_no_part_of_the_answer(hello: Hello) -> None:
    for stream in (False, True):
        answer = await hello.ask("Hello world \ufffd", stream, max_new_tokens=1, allowed_token_ids=[18])
        assert answer["generated_text"] == "."


async def test_texts_are_split_without_loss(hello: Hello) -> None:
    text = "Hello world. A <|end|> within. \ufffd. \U0001f642 \ufffd"
    for separators in ([".", " "], ["?"]):
        body = {"text": text, "num_tokens_in_chunk": 1, "separators": separators}
        async with hello.client.post("/v1/split_text", json=body) as response:
            assert "".join((await response.json())["split_text"]) == text
    body = {"text": text, "truncation_side": "right", "max_length": 0}
    async with hello.client.post("/v1/metadata_text", json=body) as response:
        assert (await response.json())["truncated_text"] == text


async def test_64_concurrent_requests_get_the_answers_that_they_get_alone(hello: Hello) -> None:
    randomness = random.Random(7)
    asked: list[dict[str, Any]] = []
    for place in range(64):
        parameters: dict[str, Any] = {"max_new_tokens": randomness.choice([1, 5, 30, 100])}
        if place % 2:
            parameters |= {"do_sample": True, "seed": place, "temperature": 1.5, "top_k": 20, "top_p": 0.9}
        if place % 3 == 0:
            parameters |= {"repetition_penalty": 1.3}
        if place % 5 == 0:
            parameters |= {"stop_sequences": [" is a", "the"], "decoder_input_details": True}
        inputs = randomness.choice(["Tell me a story.", randomness.choice(QUESTIONS)["question"]])
        asked.append({"inputs": inputs, "stream": place % 4 < 2, **parameters})
    alone = [await hello.ask(**each) for each in asked]
    together = await asyncio.gather(*(hello.ask(**each) for each in asked))
    for one, other in zip(alone, together, strict=True):
        assert without_log_probs(one) == without_log_probs(other)


def without_log_probs(answer: Any) -> Any:
    """Log probabilities differ in the last digits with the batch."""
    if isinstance(answer, dict):
        return {key: without_log_probs(value) for key, value in answer.items() if key != "log_prob"}
    return [without_log_probs(value) for value in answer] if isinstance(answer, list) else answer


async def test_sampling_with_a_seed_and_without(hello: Hello) -> None:
    sampling: dict[str, Any] = {"do_sample": True, "temperature": 1.5, "max_new_tokens": 60}
    seeded = [await hello.ask("Tell me a story.", seed=1, **sampling) for _ in range(2)]
    free = [await hello.ask("Tell me a story.", **sampling) for _ in range(2)]
    assert seeded[0]["generated_text"] == seeded[1]["generated_text"]
    assert free[0]["generated_text"] != free[1]["generated_text"]


async def test_context_bounds(hello: Hello) -> None:
    body: dict[str, Any] = {"inputs": "word " * 3000}
    async with hello.client.post("/invocations", json=body) as response:
        assert response.status == 424
        assert "`inputs` must be at most 2047 tokens long. Given: " in (await response.json())["error"]
    body = {"inputs": "Hi", "parameters": {"max_new_tokens": 2048}}
    async with hello.client.post("/invocations", json=body) as response:
        assert response.status == 424
        assert (await response.json())["error"].startswith("`max_new_tokens` must be at most ")


async def test_a_client_that_leaves_stops_its_generation(hello: Hello) -> None:
    body = {"inputs": "Tell me a story.", "stream": True, "parameters": {"max_new_tokens": 2000, "do_sample": True}}
    async with hello.client.post("/invocations", json=body) as response:
        await response.content.readline()
    pair = QUESTIONS[0]
    assert (await hello.ask(pair["question"]))["generated_text"] == pair["answer"]


async def test_tgi_client(hello: Hello, tmp_path: Path) -> None:
    properties = f"option.model_id={HELLO}\noption.tgi_compat=true\n"
    (tmp_path / "serving.properties").write_text(properties)
    pair = QUESTIONS[0]
    async with (
        lmi_serve(tmp_path, "--port", 0) as server,
        AsyncInferenceClient(f"{await server.ready()}/invocations") as client,
    ):
        whole = await client.text_generation(pair["question"], details=True, max_new_tokens=100)
        assert (whole.generated_text, whole.details.finish_reason) == (pair["answer"], "eos_token")
        stream = await client.text_generation(pair["question"], stream=True, max_new_tokens=100)
        assert "".join([text async for text in stream]) == pair["answer"]


async def test_a_request_outlives_its_killed_worker(hello: Hello) -> None:
    body = {"inputs": "Tell me a story.", "stream": True, "parameters": {"max_new_tokens": 500}}
    async with hello.client.post("/invocations", json=body) as response:
        *_, expected = (await response.read()).splitlines()
    async with hello.client.post("/invocations", json=body) as response:
        await response.content.readline()
        hello.worker.suspend()  # so that it does not finish before it is killed
        hello.worker.kill()
        *_, last = (await response.read()).splitlines()
    assert json.loads(last)["generated_text"] == json.loads(expected)["generated_text"]
    async with hello.client.get("/ping") as ping:
        assert ping.status == 200
    pair = QUESTIONS[0]
    assert (await hello.ask(pair["question"]))["generated_text"] == pair["answer"]
