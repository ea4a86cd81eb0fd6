"""vLLM's fields of OpenAI's requests, served by vLLM's engine."""

import asyncio
from typing import Any

import pytest
import torch

from lmi_plugins.vllm_engine.outputs import generation
from tests.plugins.vllm_server import STORY, VllmServer, ids

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]

END = "</think>"


async def complete(vllm: VllmServer, **fields: Any) -> dict[str, Any]:
    body = {"prompt": STORY, "max_tokens": 12, "temperature": 0, "logprobs": 0, "return_tokens_as_token_ids": True}
    answer = await vllm.server.post("/v1/completions", body | fields)
    assert answer.status == 200, answer.body
    choice: dict[str, Any] = answer.json()["choices"][0]
    return choice


async def refusal(vllm: VllmServer, **fields: Any) -> str:
    answer = await vllm.server.post("/v1/completions", {"prompt": STORY, **fields})
    assert answer.status == 400, answer.body
    return str(answer.json()["error"]["message"])


def written(choice: dict[str, Any]) -> list[int]:
    return [int(token.removeprefix("token_id:")) for token in choice["logprobs"]["tokens"]]


@pytest.mark.parametrize("sampling", [{}, {"temperature": 1.5, "seed": 1}, {"bad_words": ["e"]}])
async def test_only_allowed_tokens(vllm: VllmServer, sampling: dict[str, Any]) -> None:
    allowed = [token_id for letter in "abcde" for token_id in vllm.encode(letter)]
    choice = await complete(vllm, allowed_token_ids=allowed, **sampling)
    assert len(written(choice)) == 12
    assert set(written(choice)) <= set(allowed)
    assert not set(written(await complete(vllm))) <= set(allowed)


async def test_wrong_allowed_tokens(vllm: VllmServer) -> None:
    assert "allowed_token_ids contains out-of-vocab token id" in await refusal(vllm, allowed_token_ids=[10**6])
    assert "`allowed_token_ids`" in await refusal(vllm, allowed_token_ids=[])
    beams = {"use_beam_search": True, "n": 2, "temperature": 0}
    assert "`allowed_token_ids` cannot be used together with vLLM" in await refusal(
        vllm, allowed_token_ids=[5], **beams
    )


async def test_no_token_left_fails_the_request(vllm: VllmServer) -> None:
    """A request whose allowed tokens are all excluded fails, as even the end-of-sequence token is not allowed."""
    (letter,) = vllm.encode("b")
    body = {"prompt": STORY, "allowed_token_ids": [letter], "bad_words": ["b"]}
    answer = await vllm.server.post("/v1/completions", body)
    assert answer.status == 500, answer.body
    assert "parameters exclude all tokens" in answer.json()["error"]["message"]


@pytest.mark.parametrize("budget", [0, 1, 6])
@pytest.mark.parametrize("sampling", [{}, {"temperature": 1.5, "seed": 1}])
async def test_reasoning_that_the_prompt_opened(vllm: VllmServer, budget: int, sampling: dict[str, Any]) -> None:
    end = vllm.encode(END)
    asked = {
        "prompt": f"{STORY} <think>\n",
        "max_tokens": 30,
        "ignore_eos": True,
        "skip_special_tokens": False,
        **sampling,
    }
    free, found = await asyncio.gather(
        complete(vllm, **asked), complete(vllm, **asked, thinking_token_budget=budget, bad_words=[END])
    )
    assert written(found)[: budget + len(end)] == [*written(free)[:budget], *end]
    assert len(written(found)) == 30
    assert written(await complete(vllm, **asked, thinking_token_budget=-1)) == written(free)


async def test_reasoning_that_the_model_begins(vllm: VllmServer) -> None:
    """The marker of the reasoning is a token that this model generates by itself."""
    free = ids((await vllm.ask(STORY, max_new_tokens=30, ignore_eos_token=True))["details"]["tokens"])
    begin, end = free.index(free[2]) + 1, vllm.encode(END)
    asked = {"tokens": 3, "starts": [[free[2]]], "ends": [end]}
    answer = await vllm.ask(STORY, max_new_tokens=30, ignore_eos_token=True, reasoning_budget=asked)
    found = ids(answer["details"]["tokens"])
    assert found[: begin + 3 + len(end)] == [*free[: begin + 3], *end]


async def test_markers_beyond_the_vocabulary_do_not_reach_the_engine(vllm: VllmServer) -> None:
    error = await vllm.refusal(STORY, reasoning_budget={"tokens": 0, "ends": [[10**6]], "inside": True})
    assert error.startswith("`reasoning_budget` must contain token ids from 0 to ")
    assert (await vllm.ask(STORY))["generated_text"]


async def test_named_tokens_beside_the_likeliest(vllm: VllmServer) -> None:
    """Requests for named tokens do not change the most likely tokens of requests in the same batch."""
    named = [90, 70, 61]
    alone = await complete(vllm, logprobs=4)
    everything = (await vllm.vllm(STORY, temperature=0.0, max_tokens=12, logprobs=-1)).outputs[0]
    found, beside, other = await asyncio.gather(
        complete(vllm, logprobs=1, logprob_token_ids=named),
        complete(vllm, logprobs=4),
        complete(vllm, logprobs=0, logprob_token_ids=named[:1]),
    )
    assert written(found) == written(alone) == list(everything.token_ids)
    for token_id, place, expected in zip(
        written(found), found["logprobs"]["top_logprobs"], everything.logprobs, strict=True
    ):
        assert list(place) == [f"token_id:{each}" for each in dict.fromkeys([token_id, *named])]
        for name, log_prob in place.items():
            assert log_prob == pytest.approx(expected[int(name.removeprefix("token_id:"))].logprob, abs=1e-3)
    for place, expected in zip(beside["logprobs"]["top_logprobs"], alone["logprobs"]["top_logprobs"], strict=True):
        assert place == pytest.approx(expected, abs=1e-3)
    assert [list(place)[1:] for place in other["logprobs"]["top_logprobs"]] == [["token_id:90"]] * 12


async def test_wrong_named_tokens(vllm: VllmServer) -> None:
    assert "out-of-vocab" in await refusal(vllm, logprobs=1, logprob_token_ids=[10**6])
    assert "`logprob_token_ids` requires `logprobs`" in await refusal(vllm, logprob_token_ids=[1])


async def test_rows_without_named_tokens() -> None:
    from vllm.v1.outputs import LogprobsTensors

    from lmi_plugins.vllm_engine.outputs.named_log_probs import with_likeliest

    log_probs = torch.randn(3, 10).log_softmax(-1)
    ids = torch.tensor([[1, 5], [2, 0], [3, 0]], dtype=torch.int32)
    values = log_probs.gather(1, ids.long())
    found = with_likeliest(LogprobsTensors(ids, values, torch.zeros(3)), log_probs, [1, 2], most=4)
    assert found.logprob_token_ids[0, :2].tolist() == [1, 5]
    assert found.logprob_token_ids[:, 0].tolist() == [1, 2, 3]
    for row in (1, 2):
        best = log_probs[row].topk(4)
        assert found.logprob_token_ids[row, 1:].tolist() == best.indices.tolist()
        assert torch.equal(found.logprobs[row, 1:], best.values)


async def test_the_end_of_a_repetition(vllm: VllmServer) -> None:
    """One token alone is allowed, so that it repeats itself from the second on."""
    (letter,) = vllm.encode("b")
    one = {"max_pattern_size": 3, "min_count": 4}
    found = await complete(vllm, allowed_token_ids=[letter], repetition_detection=one)
    assert (len(written(found)), found["finish_reason"]) == (4, "stop")
    later = await complete(vllm, allowed_token_ids=[letter], repetition_detection=one, min_tokens=6)
    assert (len(written(later)), later["finish_reason"]) == (6, "stop")
    longer = await complete(vllm, allowed_token_ids=[letter], repetition_detection=one | {"min_pattern_size": 2})
    assert len(written(longer)) == 8
    never = await complete(vllm, allowed_token_ids=[letter], repetition_detection={"max_pattern_size": 0})
    assert (len(written(never)), never["finish_reason"]) == (12, "length")


async def test_prompts_of_one_salt_share_what_was_computed(vllm: VllmServer, monkeypatch: pytest.MonkeyPatch) -> None:
    prompt = "A prompt of its own, which is as long as some blocks of the cache are. " * 8
    found: list[bool] = []
    monkeypatch.setattr(generation, "transfer", lambda output: found.append(output.num_cached_tokens > 0))
    for salt in ("a", "b", "a", None, None):
        await complete(vllm, prompt=prompt, max_tokens=1, cache_salt=salt)
    assert found == [False, False, True, False, True]
    assert "`cache_salt` must not contain" in await refusal(vllm, cache_salt="a/b")


async def test_arguments_that_are_others(vllm: VllmServer) -> None:
    for name in ("reasoning_budget", "bad_sequences", "typical_p", "no_repeat_ngram_size", "kv_transfer_params"):
        message = await refusal(vllm, vllm_xargs={name: "x"})
        assert message == f"`vllm_xargs` must not contain `{name}`, which is a separate parameter"
    assert "`vllm_xargs.a` must be a string, a number" in await refusal(vllm, vllm_xargs={"a": {"b": 1}})
    deep: dict[str, Any] = {}
    for _ in range(32):
        deep = {"a": deep}
    assert "`kv_transfer_params` must have at most 32 levels of nesting" in await refusal(vllm, kv_transfer_params=deep)
    beams = {"use_beam_search": True, "n": 2, "temperature": 0, "vllm_xargs": {"a": 1}}
    assert await refusal(vllm, **beams) == "`num_beams` above 1 and `vllm_xargs` cannot be used together with vLLM"
    repeated = await refusal(
        vllm, use_beam_search=True, n=2, repetition_detection={"max_pattern_size": 1, "min_count": 2}
    )
    assert repeated == "`repetition_detection` and `num_beams` above 1 cannot be used together"
    assert written(await complete(vllm, vllm_xargs={"a": [1, "b"]})) == written(await complete(vllm))


async def test_the_scheduler_is_told_the_priority(vllm: VllmServer, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []
    add_request = vllm.engine.add_request

    async def recording(*asked: Any, priority: int, **further: Any) -> Any:
        told.append(priority)
        return await add_request(*asked, priority=priority, **further)

    monkeypatch.setattr(vllm.engine, "add_request", recording)
    await complete(vllm, max_tokens=1, priority=-5)
    await complete(vllm, max_tokens=1, priority=7, n=2, temperature=1)
    await complete(vllm, max_tokens=1, priority=None)
    await complete(vllm, max_tokens=1, priority=3, use_beam_search=True, n=2, logprobs=None)
    assert told == [-5, 7, 7, 0, 3]
    assert "`priority`" in await refusal(vllm, priority="high")
