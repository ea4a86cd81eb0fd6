"""vLLM's fields of OpenAI's requests over HTTP: a tiny random model in the torch engine's process."""

from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
import pytest_asyncio

from tests.conftest import RunningServer, running_server
from tests.plugins.torch_engine.tiny_models import VOCABULARY, save_model, save_tokenizer

PROMPT = "Hello world"
END = "</think>"
TEMPLATE = "{{ messages[-1].content }}{% if open %}<think>\n{% endif %}"
PROPERTIES = "option.rolling_batch=torch\noption.reasoning_parser=qwen3\noption.chat_template=template.jinja\n"

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningServer]:
    directory = tmp_path_factory.mktemp("models") / "tiny"
    save_tokenizer(directory)
    save_model(directory, "llama")
    (directory / "serving.properties").write_text(PROPERTIES)
    (directory / "template.jinja").write_text(TEMPLATE)
    async with running_server(directory) as server:
        yield server


async def complete(server: RunningServer, **fields: Any) -> Any:
    body = {"prompt": PROMPT, "max_tokens": 30, "temperature": 0, "logprobs": 0, "return_tokens_as_token_ids": True}
    answer = await server.post("/v1/completions", body | {"ignore_eos": True} | fields)
    assert answer.status == 200, answer.body
    return answer.json()["choices"][0]


async def think(server: RunningServer, budget: int | None, **fields: Any) -> tuple[list[int], dict[str, Any]]:
    """The generated tokens, and the message."""
    body = {
        "messages": [{"role": "user", "content": PROMPT}],
        "chat_template_kwargs": {"open": True},
        "logprobs": True,
        "return_tokens_as_token_ids": True,
        "skip_special_tokens": False,
        "ignore_eos": True,
        "max_tokens": 40,
        "temperature": 0,
        "thinking_token_budget": budget,
    }
    answer = await server.post("/v1/chat/completions", body | fields)
    assert answer.status == 200, answer.body
    choice = answer.json()["choices"][0]
    return [int(each["token"].removeprefix("token_id:")) for each in choice["logprobs"]["content"]], choice["message"]


@pytest.mark.parametrize("given", [{"temperature": 5, "seed": 3}, {"beam_width": 4}])
async def test_triton_s_log_probs_have_ranks(server: RunningServer, given: dict[str, Any]) -> None:
    """The rank of each generated token is the one that it has as part of a prompt."""
    asked = {"return_logprobs": True, "max_tokens": 8, "ignore_eos": True, **given}
    answer = await server.post("/v2/models/tiny/generate", {"text_input": PROMPT, **asked})
    places = orjson.loads(answer.json()["logprobs"])
    sampled = [next(iter(place)) for place in places]
    prompt = (await server.post("/tokenize", {"prompt": PROMPT})).json()["tokens"]
    body = {"prompt": [*prompt, *map(int, sampled)], "max_tokens": 1, "prompt_logprobs": 0, "temperature": 0}
    (choice,) = (await server.post("/v1/completions", body)).json()["choices"]
    expected = [place[token]["rank"] for place, token in zip(choice["prompt_logprobs"][-8:], sampled, strict=True)]
    found = [place[token]["rank"] for place, token in zip(places, sampled, strict=True)]
    assert found == expected
    assert max(found) > 1


async def test_echoed_special_tokens_are_where_the_prompt_has_them(server: RunningServer) -> None:
    fields = {"prompt": "Hello</s> world", "truncate_prompt_tokens": 9, "echo": True, "max_tokens": 1}
    choice = await complete(server, **fields, return_tokens_as_token_ids=False)
    tokens, offsets = choice["logprobs"]["tokens"], choice["logprobs"]["text_offset"]
    places = [*zip(tokens, offsets, strict=True)][tokens.index("</s>") - 1 : -1]
    assert len(places) >= 3
    assert [choice["text"][offset:][: len(token)] for token, offset in places] == [token for token, _ in places]


async def refusal(server: RunningServer, **fields: Any) -> str:
    answer = await server.post("/v1/completions", {"prompt": PROMPT, **fields})
    assert answer.status == 400, answer.body
    return str(answer.json()["error"]["message"])


def ids(choice: Any) -> list[int]:
    return [int(token.removeprefix("token_id:")) for token in choice["logprobs"]["tokens"]]


@pytest.mark.parametrize("sampling", [{}, {"temperature": 1.5, "seed": 1}, {"use_beam_search": True, "best_of": 2}])
async def test_only_allowed_tokens(server: RunningServer, sampling: dict[str, Any]) -> None:
    allowed = [70, 80, 90]
    assert not set(ids(await complete(server))) <= set(allowed)
    assert set(ids(await complete(server, allowed_token_ids=allowed, **sampling))) <= set(allowed)


async def test_allowed_tokens_beside_what_excludes_others(server: RunningServer) -> None:
    """Each of the two takes some away."""
    letters = [server.model.backend.tokenizer.encode(letter, False)[0] for letter in "abc"]
    choice = await complete(server, allowed_token_ids=letters, bad_words=["a"], logit_bias={str(letters[0]): 100})
    assert set(ids(choice)) <= set(letters[1:])
    guided = await complete(server, allowed_token_ids=letters, guided_regex="[b-z]{5}", ignore_eos=False, max_tokens=5)
    assert guided["text"]
    assert set(guided["text"]) <= set("bc")


async def test_wrong_allowed_tokens(server: RunningServer) -> None:
    message = await refusal(server, allowed_token_ids=[1, VOCABULARY])
    assert message == f"`allowed_token_ids` must contain token ids from 0 to {VOCABULARY - 1}. Given: {VOCABULARY}"
    assert "`allowed_token_ids`" in await refusal(server, allowed_token_ids=[])


@pytest.mark.parametrize("budget", [0, 1, 6])
@pytest.mark.parametrize("sampling", [{}, {"temperature": 1.5, "seed": 1}])
async def test_reasoning_that_the_prompt_opened(server: RunningServer, budget: int, sampling: dict[str, Any]) -> None:
    """The prompt's own tokens, the line break after the marker too, are not counted."""
    end = server.model.backend.tokenizer.encode(END, False)
    free, message = await think(server, None, **sampling)
    assert message["content"] is None, "this model does not end by itself"
    found, message = await think(server, budget, **sampling)
    assert found[: budget + len(end)] == [*free[:budget], *end]
    assert END not in message["content"]
    assert len(found) == 40
    assert (await think(server, -1, **sampling))[0] == free


async def test_the_end_comes_whatever_else_is_asked_for(server: RunningServer) -> None:
    end = server.model.backend.tokenizer.encode(END, False)
    found, _ = await think(server, 3, allowed_token_ids=[70, 80], bad_words=["think"], min_tokens=20)
    assert found[3 : 3 + len(end)] == end
    assert {*found[:3], *found[3 + len(end) :]} <= {70, 80}


async def test_a_guide_comes_after_the_forced_end(server: RunningServer) -> None:
    _, message = await think(server, 4, guided_regex="[0-9]{3}", ignore_eos=False, skip_special_tokens=True)
    assert message["reasoning"]
    assert len(message["content"]) == 3
    assert message["content"].isdigit()


async def test_reasoning_that_the_model_begins(server: RunningServer) -> None:
    """The marker of the reasoning is a token that this model generates by itself."""
    end = server.model.backend.tokenizer.encode(END, False)
    free = ids(await complete(server))
    assert free == ids(await complete(server, thinking_token_budget=4)), "nothing is counted before the reasoning"
    asked = {"tokens": 3, "starts": [[free[2]]], "ends": [end]}
    answer = await server.post(
        "/invocations",
        {"inputs": PROMPT, "parameters": {"details": True, "reasoning_budget": asked, "ignore_eos_token": True}},
    )
    begin = free.index(free[2]) + 1
    found = [token["id"] for token in answer.json()["details"]["tokens"]]
    assert found[: begin + 3 + len(end)] == [*free[: begin + 3], *end]


async def test_completions_whose_prompt_is_within_the_reasoning(server: RunningServer) -> None:
    tokenizer = server.model.backend.tokenizer
    end = tokenizer.encode(END, False)
    text = "Hi <think> I see"
    for prompt in (text, tokenizer.encode(text, True)):
        found = ids(await complete(server, prompt=prompt, thinking_token_budget=2))
        assert found[2 : 2 + len(end)] == end
    closed = f"{text}{END} well"
    assert await complete(server, prompt=closed, thinking_token_budget=2) == await complete(server, prompt=closed)


@pytest.mark.parametrize("log_probs", [0, 3])
async def test_log_probs_of_named_tokens(server: RunningServer, log_probs: int) -> None:
    named = [90, 70, 300]
    everything = await complete(server, logprobs=20, max_tokens=4)
    found = await complete(server, logprobs=log_probs, logprob_token_ids=named, max_tokens=4)
    assert found["logprobs"]["token_logprobs"] == pytest.approx(everything["logprobs"]["token_logprobs"])
    for token, own, place in zip(
        found["logprobs"]["tokens"],
        found["logprobs"]["token_logprobs"],
        found["logprobs"]["top_logprobs"],
        strict=True,
    ):
        assert list(place) == list(dict.fromkeys([token, *(f"token_id:{i}" for i in named)]))
        assert place[token] == own
    forced = await complete(server, logprobs=0, allowed_token_ids=[70], max_tokens=1)
    first = found["logprobs"]["top_logprobs"][0]["token_id:70"]
    assert forced["logprobs"]["token_logprobs"] == pytest.approx([first])


async def test_named_tokens_in_chats(server: RunningServer) -> None:
    body = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 3, "logprobs": True, "temperature": 0}
    answer = await server.post(
        "/v1/chat/completions", body | {"logprob_token_ids": [70, 80], "return_tokens_as_token_ids": True}
    )
    for token in answer.json()["choices"][0]["logprobs"]["content"]:
        names = [each["token"] for each in token["top_logprobs"]]
        assert names == list(dict.fromkeys([token["token"], "token_id:70", "token_id:80"]))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"logprob_token_ids": [VOCABULARY], "logprobs": 1},
            f"`logprob_token_ids` must contain token ids from 0 to {319}",
        ),
        (
            {"logprob_token_ids": [1], "logprobs": 1, "use_beam_search": True, "n": 2},
            "`use_beam_search` cannot be used",
        ),
        ({"logprob_token_ids": [1], "logprobs": 1, "echo": True}, "`echo` cannot be used together"),
        ({"logprob_token_ids": [1]}, "`logprob_token_ids` requires `logprobs`"),
        ({"logprob_token_ids": list(range(129)), "logprobs": 1}, "`logprob_token_ids` "),
    ],
)
async def test_wrong_named_tokens(server: RunningServer, fields: dict[str, Any], message: str) -> None:
    assert message in await refusal(server, **fields)


REPEATED = {"max_pattern_size": 3, "min_count": 4}


@pytest.mark.parametrize(
    ("fields", "length"),
    [
        ({"repetition_detection": REPEATED}, 4),
        ({"repetition_detection": REPEATED, "min_tokens": 6}, 6),
        ({"repetition_detection": REPEATED | {"min_pattern_size": 2}}, 8),
        ({"repetition_detection": REPEATED, "max_tokens": 4}, 4),
        ({"repetition_detection": {"max_pattern_size": 0}}, 30),
    ],
)
async def test_the_end_of_a_repetition(server: RunningServer, fields: dict[str, Any], length: int) -> None:
    """One token alone is allowed, which so repeats itself; the numbers are those of vLLM's engine."""
    found = await complete(server, allowed_token_ids=[70], **fields)
    ended_by_length = length == 30 or "max_tokens" in fields
    assert (len(ids(found)), found["finish_reason"]) == (length, "length" if ended_by_length else "stop")


async def test_a_repetition_has_no_place_in_beam_search(server: RunningServer) -> None:
    asked = {"use_beam_search": True, "n": 2, "temperature": 0, "repetition_detection": REPEATED}
    message = "`repetition_detection` and `num_beams` above 1 cannot be used together"
    assert await refusal(server, **asked) == message
