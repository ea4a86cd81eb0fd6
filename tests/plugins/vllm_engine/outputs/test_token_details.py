"""Log probabilities and token ids of OpenAI's dialects on vLLM: as the engine itself tells them."""

from typing import Any

import pytest

from tests.conftest import RunningServer
from tests.handlers.openai.chats import events
from tests.plugins.vllm_server import STORY, VllmServer

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]

QUESTION = "What is Deep Learning?"
MESSAGES = [{"role": "user", "content": QUESTION}]
GREEDY = {"temperature": 0}
CLOSE = 1e-3


@pytest.fixture(autouse=True)
def chat_template(vllm: VllmServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine that tests share has none."""
    template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    monkeypatch.setattr(vllm.server.model, "chat_template", template)


async def post(server: RunningServer, path: str, **fields: Any) -> Any:
    answer = await server.post(path, {**GREEDY, **fields})
    assert answer.status == 200, answer.body
    return answer.json()


@pytest.mark.parametrize("count", [0, 3, -1])
async def test_prompt_log_probabilities(vllm: VllmServer, count: int) -> None:
    answer = await post(vllm.server, "/v1/completions", prompt=STORY, max_tokens=1, prompt_logprobs=count)
    first, *found = answer["choices"][0]["prompt_logprobs"]
    output = await vllm.vllm(STORY, prompt_logprobs=count, max_tokens=1, temperature=0)
    assert (first, output.prompt_logprobs[0]) == (None, None)
    assert len(found) == len(output.prompt_logprobs) - 1 > 2
    for place, theirs in zip(found, output.prompt_logprobs[1:], strict=True):
        own, *_ = theirs
        assert next(iter(place)) == str(own)
        assert place.keys() == {str(token_id) for token_id in theirs}
        for token_id, each in theirs.items():
            assert place[str(token_id)]["logprob"] == pytest.approx(each.logprob, abs=CLOSE)
        assert place[str(own)]["rank"] == theirs[own].rank
        assert place[str(own)]["decoded_token"] == theirs[own].decoded_token


async def test_chats(vllm: VllmServer) -> None:
    answer = await post(
        vllm.server,
        "/v1/chat/completions",
        messages=MESSAGES,
        prompt_logprobs=1,
        return_token_ids=True,
        return_prompt_text=True,
        logprobs=True,
        top_logprobs=2,
    )
    prompt = vllm.encode(answer["prompt_text"])
    assert QUESTION in answer["prompt_text"]
    assert answer["prompt_token_ids"] == prompt
    assert [next(iter(place)) for place in answer["prompt_logprobs"][1:]] == [str(each) for each in prompt[1:]]
    (choice,) = answer["choices"]
    output = await vllm.vllm(answer["prompt_text"], max_tokens=100, temperature=0, logprobs=2)
    (completion,) = output.outputs
    assert choice["token_ids"] == list(completion.token_ids)
    assert choice["token_ids"][-1] == 1, "the end-of-sequence token"
    content = choice["logprobs"]["content"]
    assert len(content) == answer["usage"]["completion_tokens"] == len(completion.token_ids)
    for entry, token_id, place in zip(content, completion.token_ids, completion.logprobs, strict=True):
        assert entry["logprob"] == pytest.approx(place[token_id].logprob, abs=CLOSE)
        assert [top["logprob"] for top in entry["top_logprobs"]] == pytest.approx(
            sorted((each.logprob for each in place.values()), reverse=True), abs=CLOSE
        )


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_streams_tell_every_token(vllm: VllmServer, path: str) -> None:
    prompt: dict[str, Any] = {"messages": MESSAGES} if "chat" in path else {"prompt": QUESTION, "logprobs": 0}
    fields = {"logprobs": True, **prompt, "max_tokens": 40, "return_token_ids": True}
    whole = await post(vllm.server, path, **fields)
    answer = await vllm.server.post(path, {**GREEDY, **fields, "stream": True})
    chunks = events(answer)
    told = [each for chunk in chunks for each in chunk["choices"][0].get("token_ids") or ()]
    assert told == whole["choices"][0]["token_ids"]
    assert len(told) == whole["usage"]["completion_tokens"]
    name = "content" if "chat" in path else "tokens"
    lists = [chunk["choices"][0]["logprobs"][name] for chunk in chunks if chunk["choices"][0]["logprobs"]]
    assert all(lists)
    assert [each for tokens in lists for each in tokens] == whole["choices"][0]["logprobs"][name]


async def test_the_chosen_token_is_among_the_likeliest(vllm: VllmServer) -> None:
    answer = await post(
        vllm.server,
        "/v1/chat/completions",
        messages=MESSAGES,
        temperature=2,
        seed=1,
        max_tokens=30,
        ignore_eos=True,
        logprobs=True,
        top_logprobs=1,
        return_tokens_as_token_ids=True,
    )
    content = answer["choices"][0]["logprobs"]["content"]
    lengths = {len(entry["top_logprobs"]) for entry in content}
    assert lengths == {1, 2}, "some tokens are the likeliest, and some are not"
    for entry in content:
        assert (entry["token"], entry["logprob"]) in [(top["token"], top["logprob"]) for top in entry["top_logprobs"]]
        log_probs = [top["logprob"] for top in entry["top_logprobs"]]
        assert log_probs == sorted(log_probs, reverse=True)


@pytest.mark.parametrize("fields", [{}, {"n": 2, "temperature": 1}, {"n": 2, "use_beam_search": True}])
async def test_cached_tokens(vllm: VllmServer, fields: dict[str, Any]) -> None:
    prompt = f"{sorted(fields)} {STORY}" + " It begins with a cat." * 60
    for path, asked in (
        ("/v1/completions", {"prompt": prompt}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": f"You: {prompt}"}]}),
    ):
        found = []
        for _ in range(2):
            answer = await post(vllm.server, path, max_tokens=2, **asked, **fields)
            found.append(answer["usage"]["prompt_tokens_details"]["cached_tokens"])
        assert found[0] == 0
        assert 0 < found[1] < answer["usage"]["prompt_tokens"]
