"""Guides that cost too much are refused before vLLM gets them, each after one trial."""

import asyncio
import io
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from lmi_core.errors import GenerationFailed, InvalidParameter
from lmi_core.texts.huggingface_tokenizer import HuggingFaceTokenizer
from lmi_plugins.torch_engine.guides.isolated.compile_process import CompileProcess
from lmi_plugins.torch_engine.messages.requests import MIB, Guide, GuideLimits
from lmi_plugins.vllm_engine.requests.guides import GuideTrials
from tests.conftest import Answer
from tests.plugins.costly_guides import BOMBS, SOON, eventually, forks, is_running, next_fork, optional_letters
from tests.plugins.vllm_server import HELLO, VllmServer

SLOW = Guide("grammar", optional_letters(10_000))
PATIENT = GuideLimits(compile_seconds=600, memory=4096 * MIB)
LESS_THAN_COMPILING = 20.0  # seconds


@pytest.fixture(scope="module")
def tokenizer() -> HuggingFaceTokenizer:
    return HuggingFaceTokenizer.load(str(HELLO), None, False)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def trials(tokenizer: HuggingFaceTokenizer) -> AsyncIterator[GuideTrials]:
    trials = GuideTrials(tokenizer, PATIENT)
    yield trials
    await trials.stop()


async def check(trials: GuideTrials, guide: Guide) -> None:
    await trials.check(guide, trials._tokenizer.pretrained.vocab_size)


def count_compiled(monkeypatch: pytest.MonkeyPatch) -> list[Guide]:
    """Return the guides that are tried from now on, as they come."""
    tried: list[Guide] = []
    compile_guide = CompileProcess.compile

    def counted(self: CompileProcess, guide: Guide, *others: Any) -> str:
        tried.append(guide)
        return compile_guide(self, guide, *others)

    monkeypatch.setattr(CompileProcess, "compile", counted)
    return tried


@pytest.mark.asyncio(loop_scope="session")
async def test_a_guide_is_tried_once(trials: GuideTrials, monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad, tried = Guide("regex", "[ab]{3}"), Guide("json", '{"$ref": "#"}'), count_compiled(monkeypatch)
    await asyncio.gather(*(check(trials, good) for _ in range(3)))
    await check(trials, good)
    for _ in range(2):
        with pytest.raises(InvalidParameter, match=r"^`guided_json` cannot be used: it does not allow any text$"):
            await check(trials, bad)
    assert tried == [good, bad]


@pytest.mark.asyncio(loop_scope="session")
async def test_a_trial_ends_with_its_last_request(trials: GuideTrials) -> None:
    await check(trials, Guide("choice", ["a"]))
    known = forks()
    requests = [asyncio.create_task(check(trials, SLOW)) for _ in range(2)]
    try:
        fork = await next_fork(known)
        requests[0].cancel()
        await check(trials, Guide("choice", ["b"]))
        assert is_running(fork)
    finally:
        requests[1].cancel()
    await eventually(lambda: not is_running(fork), LESS_THAN_COMPILING)
    assert all(
        isinstance(each, asyncio.CancelledError) for each in await asyncio.gather(*requests, return_exceptions=True)
    )


async def test_stopping_ends_trials(tokenizer: HuggingFaceTokenizer) -> None:
    trials = GuideTrials(tokenizer, PATIENT)
    await check(trials, Guide("choice", ["a"]))
    known = forks()
    request = asyncio.create_task(check(trials, SLOW))
    fork = await next_fork(known)
    compiling = forks()[fork]
    await trials.stop()
    with pytest.raises(GenerationFailed):
        await request
    await eventually(lambda: not is_running(fork) and not is_running(compiling), LESS_THAN_COMPILING)
    with pytest.raises(RuntimeError):
        await check(trials, Guide("choice", ["b"]))


async def test_the_limit_of_size_needs_no_process(tokenizer: HuggingFaceTokenizer) -> None:
    trials = GuideTrials(tokenizer, GuideLimits(size=10))
    with pytest.raises(InvalidParameter, match="must have at most 10 bytes"):
        await check(trials, Guide("choice", ["12345", "678901"]))
    assert trials._process is None


async def ask(vllm: VllmServer, **parameters: Any) -> Answer:
    """Ask, and again where the trial of a guide made room for others, as happens on a machine that does much else."""
    while (answer := await _ask(vllm, **parameters)).status == 503:
        await asyncio.sleep(1)
    return answer


async def _ask(vllm: VllmServer, **parameters: Any) -> Answer:
    body = json.dumps({"inputs": "Hello", "parameters": {"max_new_tokens": 30} | parameters}).encode()
    headers = {"Content-Type": "application/json"}
    async with vllm.server.client.post("/invocations", data=io.BytesIO(body), headers=headers) as response:
        return Answer(response.status, response.headers, await response.read())


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.timeout(300)
async def test_a_costly_guide_costs_its_own_request_alone(vllm: VllmServer) -> None:
    assert (await ask(vllm, guided_regex="[ab]{3}")).status == 200
    before = forks().keys()
    bombs = {name: asyncio.create_task(ask(vllm, **guide)) for name, guide in BOMBS.items()}
    await eventually(lambda: len(forks().keys() - before) > 1)
    for number in range(3):
        small = await asyncio.wait_for(ask(vllm, guided_choice=[f"yes {number}"]), SOON)
        assert small.json()["generated_text"] == f"yes {number}"
        assert (await vllm.server.get("/ping")).status == 200
    answers = dict(zip(bombs, await asyncio.wait_for(asyncio.gather(*bombs.values()), 3 * SOON), strict=True))
    found = {name: (answer.status, answer.json().get("error")) for name, answer in answers.items()}
    assert {status for status, _ in found.values()} == {424}, found
    assert "ms of CPU time" in found["nested repetitions"][1]
    assert "ms of CPU time" in found["ambiguity"][1]
    assert "must compile within" in found["more optional letters"][1]
    assert "must have at most" in found["large enum"][1]
    assert "it does not allow any text" in found["schema of itself"][1]
    assert not await vllm.is_working()
    await eventually(lambda: forks().keys() <= before)


OF_OPENAI: list[dict[str, Any]] = [
    {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"$ref": "#"}}}},
    {"structured_outputs": {"grammar": "root ::= root"}},
    {"structured_outputs": {"regex": "((.{1,99}){1,99}){1,99}"}},
    {
        "tool_choice": "required",
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "f",
                    "parameters": {
                        "type": "object",
                        "properties": {"a": {"$ref": "#/properties/a"}},
                        "required": ["a"],
                    },
                },
            }
        ],
    },
]


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("guide", OF_OPENAI, ids=["schema", "grammar", "regex", "tool"])
@pytest.mark.parametrize("stream", [False, True])
async def test_openai_clients_get_400(vllm: VllmServer, guide: dict[str, Any], stream: bool) -> None:
    body = {"model": "hello", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5, "stream": stream}
    answer = await vllm.server.post("/v1/chat/completions", body | guide)
    assert answer.status == 400, answer.body
    assert json.loads(answer.body)["error"]["type"] == "invalid_request_error"


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.timeout(300)
async def test_mistakes_are_left_to_vllm(vllm: VllmServer) -> None:
    """What xgrammar does not take may be for another library, so vLLM itself refuses it or not."""
    for guide in ({"guided_regex": "[a"}, {"guided_grammar": "root ::= ("}, {"guided_json": {"type": "wrong"}}):
        assert "vLLM refuses the request: " in (await ask(vllm, **guide)).json()["error"]
    tag = await ask(vllm, guided_structural_tag={"format": {"type": "nonsense"}})
    assert tag.json()["error"].startswith("`guided_structural_tag` cannot be used: ")
