"""vLLM's outputs as steps."""

from typing import Any

import pytest

from lmi_plugins.vllm_engine import service
from lmi_plugins.vllm_engine.outputs.stream_intervals import StreamIntervals
from lmi_plugins.vllm_engine.requests.sampling import sampling_params
from tests.plugins.vllm_server import STORY, VllmServer

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]

AT_ONCE = 5


@pytest.fixture
def several_at_once(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Make vLLM hand over so many tokens at once, and return what it was asked with."""
    asked = []

    def with_interval(*arguments: Any) -> Any:
        parameters = sampling_params(*arguments)
        parameters.stream_interval = AT_ONCE
        asked.append(parameters)
        return parameters

    monkeypatch.setattr(service, "sampling_params", with_interval)
    monkeypatch.setattr(StreamIntervals, "choose", lambda _: AT_ONCE)
    return asked


async def test_each_of_several_tokens_has_its_own_line(vllm: VllmServer, several_at_once: list[Any]) -> None:
    whole = await vllm.ask(STORY, max_new_tokens=23)
    prompt = {"prompt_token_ids": vllm.encode(STORY)}
    outputs = [output.outputs[0] async for output in vllm.engine.generate(prompt, several_at_once[0], "own")]
    assert max(len(output.token_ids) for output in outputs) >= AT_ONCE
    lines = await vllm.stream(STORY, max_new_tokens=23)
    tokens = [line["token"] for line in lines]
    assert [{key: token[key] for key in ("id", "text")} for token in tokens] == [
        {key: token[key] for key in ("id", "text")} for token in whole["details"]["tokens"]
    ]
    assert all(token["log_prob"] <= 0 for token in tokens)
    assert len({token["log_prob"] for token in tokens}) == len(tokens) == 23
    assert lines[-1]["generated_text"] == whole["generated_text"]


async def test_the_stop_text_that_ended_an_answer(vllm: VllmServer, monkeypatch: pytest.MonkeyPatch) -> None:
    template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    monkeypatch.setattr(vllm.server.model, "chat_template", template)
    body = {"max_tokens": 40, "temperature": 0, "messages": [{"role": "user", "content": STORY}]}
    whole = (await vllm.server.post("/v1/messages", body)).json()["content"][0]["text"]
    stop = whole[4:9]
    ended = (await vllm.server.post("/v1/messages", body | {"stop_sequences": ["zzz", stop]})).json()
    assert (ended["content"][0]["text"], ended["stop_sequence"]) == (whole[: whole.index(stop)], stop)


async def test_a_stop_sequence_among_several_tokens(vllm: VllmServer, several_at_once: list[Any]) -> None:
    """Tokens that vLLM generated after the stop sequence are omitted."""
    answer = await vllm.ask(STORY, stop_sequences=[" time"])
    assert several_at_once
    assert answer["generated_text"] == "Once upon a"
    assert (answer["details"]["finish_reason"], answer["details"]["generated_tokens"]) == ("stop_sequence", 4)
    await vllm.until(working=False)
