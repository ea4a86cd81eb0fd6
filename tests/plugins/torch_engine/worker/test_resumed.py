"""Requests whose worker is killed go on in the next one, and give what they give without that."""

import asyncio
import json
import os
import shutil
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from transformers import AutoModelForCausalLM

from lmi_core.errors import GenerationFailed
from lmi_core.generation.output import GenerationStep, Token
from lmi_core.workers import supervisor
from lmi_core.workers.isolation import Presence
from lmi_plugins.torch_engine.client import client as torch_client
from lmi_plugins.torch_engine.client.client import EngineClient
from lmi_plugins.torch_engine.messages.requests import (
    EngineOptions,
    Guide,
    ReasoningLimit,
    Repetition,
    SamplingParameters,
)
from tests.plugins.torch_engine.adapters.lora_adapters import save_adapter
from tests.plugins.torch_engine.poisoned_worker import POISON, TORCH, importable_in_workers
from tests.plugins.torch_engine.tiny_models import save_model, save_tokenizer

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROMPT = [5, 6, 7]
LONG = 700  # tokens, which take longer than it takes to kill a worker
ITEMS = {"type": "array", "items": {"enum": ["yes", "no", "perhaps"]}, "minItems": 200, "maxItems": 300}
SEEDED: dict[str, Any] = {"temperature": 1.0, "seed": 7}
REQUESTS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "seeded": SEEDED,
    "seeded, several": {**SEEDED, "num_samples": 3},
    "narrow": {**SEEDED, "top_k": 20, "top_p": 0.9, "min_p": 0.01, "typical_p": 0.95},
    "penalties": {"repetition_penalty": 1.1, "presence_penalty": 0.5, "frequency_penalty": 0.3, "logit_bias": {9: 2.0}},
    "n-grams": {"no_repeat_ngram_size": 3, "bad_sequences": [[11, 12], [13]], "bad_texts": ["a"]},
    "guided": {"guide": Guide("json", json.dumps(ITEMS))},
    "guided, seeded": {**SEEDED, "guide": Guide("regex", "([a-f]{3} ){150,}")},
    "stops": {**SEEDED, "stop_sequences": ["qqqq", "ee"], "stop_token_sequences": [[8, 8, 8]], "include_stop": True},
    "log probs": {"num_top_tokens": 2, "prompt_log_probs": True, "num_prompt_top_tokens": 2, "ranks": True},
    "logits": {"prompt_logits": True, "generation_logits": True, "max_new_tokens": 400},
    "beams": {"num_beams": 2, "max_new_tokens": 300},
    "reasoning": {**SEEDED, "reasoning_limit": ReasoningLimit(200, [[3, 4]], [[20, 21, 22]], True)},
    "repetition": {"repetition": Repetition(1, 60, 4), "min_length": 50},
    "short": {"max_new_tokens": 3},
}


class Answer:
    """All that a request has given."""

    def __init__(self) -> None:
        self.tokens: dict[int, list[Token]] = {}
        self.ends: dict[int, tuple[str | None, str | None]] = {}
        self.prefills: list[list[Token]] = []
        self.num_cached: list[int] = []
        self.logits = [0, 0]  # bytes, of the prompt and of the answer

    def add(self, step: GenerationStep) -> None:
        self.tokens.setdefault(step.sequence_index, []).extend(step.tokens)
        if step.finish_reason is not None:
            assert step.sequence_index not in self.ends
            self.ends[step.sequence_index] = (step.finish_reason, step.stop_sequence)
        self.prefills += [step.prefill] if step.prefill is not None else []
        self.num_cached += [step.cached_tokens] if step.cached_tokens is not None else []
        self.logits[0] += len(step.prompt_logits or b"")
        self.logits[1] += len(step.generation_logits or b"")

    def check(self, expected: "Answer") -> None:
        assert self.ends == expected.ends
        assert {i: plain(tokens) for i, tokens in self.tokens.items()} == {
            i: plain(tokens) for i, tokens in expected.tokens.items()
        }
        assert [plain(tokens) for tokens in self.prefills] == [plain(tokens) for tokens in expected.prefills]
        for i, tokens in self.tokens.items():
            log_probs = [token.log_prob for token in tokens]
            assert log_probs == pytest.approx([token.log_prob for token in expected.tokens[i]], abs=1e-3)
        assert len(self.num_cached) == len(expected.num_cached) == 1
        assert self.logits == expected.logits


def plain(tokens: list[Token]) -> list[Any]:
    return [(each.id, each.text, each.rank, [top.id for top in each.top_tokens or ()]) for each in tokens]


async def read(
    client: EngineClient, parameters: dict[str, Any], began: asyncio.Event, prompt: list[int] = PROMPT
) -> Answer:
    answer, asked = Answer(), SamplingParameters(**{"max_new_tokens": LONG, **parameters})
    async with aclosing(client.generate(prompt, asked)) as steps:
        async for step in steps:
            answer.add(step)
            if len(answer.tokens.get(0, [])) > 5:
                began.set()
    began.set()
    return answer


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("models") / "long"
    save_tokenizer(directory)
    save_model(directory, "llama")
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 2048}))
    return directory


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(directory: Path) -> AsyncIterator[EngineClient]:
    with importable_in_workers() as patch:
        patch.setattr(supervisor, "FIRST_DELAY", 0.01)
        patch.setattr(torch_client, "TARGET", TORCH)
        client = EngineClient(EngineOptions(str(directory)), retry_threshold=3, heartbeat_timeout=5, resume=True)
        await client.start()
        yield client
        await client.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def expected(client: EngineClient) -> dict[str, Answer]:
    answers = await asyncio.gather(*(read(client, each, asyncio.Event()) for each in REQUESTS.values()))
    return dict(zip(REQUESTS, answers, strict=True))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
async def test_answers_are_as_without_the_fault(
    client: EngineClient, expected: dict[str, Answer], number: signal.Signals
) -> None:
    before = client.replicas.first.process_id
    assert before is not None
    begun = {name: asyncio.Event() for name in REQUESTS}
    asked = {name: asyncio.create_task(read(client, each, begun[name])) for name, each in REQUESTS.items()}
    await asyncio.wait([asyncio.create_task(begun[name].wait()) for name in REQUESTS if name != "beams"])
    os.kill(before, number)
    unfinished = [name for name, task in asked.items() if not task.done()]
    assert {"greedy", "seeded, several", "guided", "stops", "log probs", "beams"} <= {*unfinished}
    for name, task in asked.items():
        (await task).check(expected[name])
    assert client.replicas.first.process_id not in (None, before)
    assert client.in_flight == 0


async def test_a_request_does_not_go_on_with_another_adapter(
    client: EngineClient, directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = AutoModelForCausalLM.from_pretrained(directory)
    folders = [str(save_adapter(tmp_path / str(seed), model, seed)) for seed in range(4)]
    replaced, available = asyncio.Event(), client.replicas.available

    async def available_later() -> None:
        await replaced.wait()
        await available()

    def ask(adapter: str) -> AsyncGenerator[GenerationStep, None]:
        return client.generate(PROMPT, SamplingParameters(max_new_tokens=LONG), adapter)

    monkeypatch.setattr(client.replicas, "available", available_later)
    for name, folder in zip(("kept", "replaced", "rewritten"), folders, strict=False):
        await client.load_adapter(name, folder)
    expected = [token async for step in ask("kept") for token in step.tokens]
    kept, lost, changed = ask("kept"), ask("replaced"), ask("rewritten")
    _, _, tokens = await anext(lost), await anext(changed), (await anext(kept)).tokens
    shutil.copytree(folders[3], folders[2], dirs_exist_ok=True)
    killed = client.replicas.first.process_id
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    async with asyncio.timeout(60):
        while client.replicas.first.process_id in (None, killed):
            await asyncio.sleep(0.01)
    await client.load_adapter("replaced", folders[3])
    replaced.set()
    for name, steps in (("replaced", lost), ("rewritten", changed)):
        with pytest.raises(GenerationFailed, match=f"the adapter `{name}` was replaced after it started"):
            _ = [step async for step in steps]
    tokens += [token async for step in kept for token in step.tokens]
    assert plain(tokens) == plain(expected)


async def test_a_request_that_makes_steps_fail_ends_alone(client: EngineClient, expected: dict[str, Answer]) -> None:
    worker, began = client.replicas.first.process_id, asyncio.Event()
    others = {name: asyncio.create_task(read(client, REQUESTS[name], began)) for name in ("greedy", "seeded", "stops")}
    unread = client.generate(PROMPT, SamplingParameters(max_new_tokens=LONG))  # whose reader must hold up nobody
    stalled = Answer()
    stalled.add(await anext(unread))
    await began.wait()
    # The five of them are tried in groups, which do not always have the same requests.
    why = r"The generation failed: poisoned; it is not tried again, because the engine failed [345] times "
    why += "while running it"
    with pytest.raises(GenerationFailed, match=f"^{why}$"):
        await read(client, {}, asyncio.Event(), POISON)
    for name, task in others.items():
        (await task).check(expected[name])
    with pytest.raises(GenerationFailed, match="failed 3 times while running it"):  # without company
        await read(client, {}, asyncio.Event(), POISON)
    async for step in unread:
        stalled.add(step)
    stalled.check(expected["greedy"])
    assert client.replicas.first.process_id == worker
    assert client.in_flight == 0


@contextmanager
def killing(client: EngineClient, prompt: list[int]) -> Iterator[list[int]]:
    """Kill each worker that has given the marked request a token, as if the request did; yield those workers."""
    killed: list[int] = []
    run = client.replicas.first.run

    async def kill_on_marker(request: Any, num_sequences: int, presence: Presence) -> AsyncIterator[GenerationStep]:
        async for step in run(request, num_sequences, presence):
            worker = client.replicas.first.process_id
            if request.prompt_ids == prompt and worker is not None and worker not in killed:  # it dies a moment later
                killed.append(worker)
                os.kill(worker, signal.SIGKILL)
            yield step

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client.replicas.first, "run", kill_on_marker)
        yield killed


async def test_a_request_that_kills_ends_alone(client: EngineClient, expected: dict[str, Answer]) -> None:
    began = asyncio.Event()
    with killing(client, [9, 9]) as killed:
        others = {name: asyncio.create_task(read(client, REQUESTS[name], began)) for name in ("greedy", "seeded")}
        await began.wait()
        why = r"exit code -9, .*; it is not tried again, because the engine failed [3-5] times while running it"
        with pytest.raises(GenerationFailed, match=why):
            await read(client, {}, asyncio.Event(), [9, 9])
        assert 3 <= len(killed) <= 5  # by who is with it in its first trial, and whether it passes before it is dead
        for name, task in others.items():
            (await task).check(expected[name])


async def test_without_company_it_ends_the_third_time(client: EngineClient) -> None:
    await client.replicas.available()
    with killing(client, [9, 9]) as killed:
        with pytest.raises(GenerationFailed, match=r"the engine failed [34] times while running it"):
            await read(client, {}, asyncio.Event(), [9, 9])
        assert len(killed) in (3, 4)  # once more if it had passed its trial before it was dead


async def test_two_deaths_in_a_row_under_many_streams(client: EngineClient) -> None:
    await client.replicas.available()
    parameters = {"max_new_tokens": 150}
    expected = await read(client, parameters, asyncio.Event())
    began = [asyncio.Event() for _ in range(24)]  # all of them in the batch
    asked = [asyncio.create_task(read(client, parameters, each)) for each in began]
    await asyncio.wait([asyncio.create_task(each.wait()) for each in began])
    killed = client.replicas.first.process_id
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    async with asyncio.timeout(60):
        while client.replicas.first.process_id in (None, killed) or client.in_flight < len(asked):
            await asyncio.sleep(0.001)
    assert client.replicas.first.process_id is not None
    os.kill(client.replicas.first.process_id, signal.SIGKILL)
    for task in asked:
        (await task).check(expected)
    assert client.in_flight == 0
