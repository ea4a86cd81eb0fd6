"""Token ids and log probabilities of every token, for OpenAI's client: a tiny model of the torch engine."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest
import pytest_asyncio
import torch
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionTokenLogprob
from transformers import AutoTokenizer

from tests.lmi_process import client_of
from tests.plugins.torch_engine.tiny_models import VOCABULARY, reference_model, save_model, save_tokenizer

MODEL = "tiny"
BEGIN, END = 0, 1  # the tokenizer's special tokens, <s> and </s>
PROMPT = "<s>Hello world, Grüße!"
MESSAGES: list[ChatCompletionMessageParam] = [{"role": "user", "content": PROMPT}]
TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"
# So likely that they come, and come at places that the seed chooses.
BIAS = {str(BEGIN): 12, str(END): 12}
SAMPLED: dict[str, Any] = {"model": MODEL, "seed": 3, "max_tokens": 40, "logit_bias": BIAS}
CLOSE = 1e-4

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("models") / MODEL
    save_tokenizer(directory)
    save_model(directory, "llama", END)
    (directory / "serving.properties").write_text(
        f"option.rolling_batch=torch\noption.chat_template={TEMPLATE}\n", encoding="utf-8"
    )
    return directory


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(directory: Path) -> AsyncIterator[AsyncOpenAI]:
    async with client_of(directory) as http:
        async with http.get("/ping") as response:
            url = response.url.origin()
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client:
            yield client


def encode(directory: Path, text: str) -> list[int]:
    ids: list[int] = AutoTokenizer.from_pretrained(directory).encode(text)
    return ids


def reference_log_probs(directory: Path, token_ids: list[int]) -> list[list[float]]:
    """Return the log probabilities that transformers computes for each token except the first."""
    with torch.inference_mode():
        logits = reference_model(directory)(torch.tensor([token_ids])).logits[0, :-1]
    found: list[list[float]] = logits.float().log_softmax(-1).tolist()
    return found


def check_prompt(found: Any, token_ids: list[int], log_probs: list[list[float]], count: int) -> None:
    """Compare the details of a prompt with those of the model in transformers."""
    first, *others = found
    assert (first, len(others)) == (None, len(token_ids) - 1)
    for place, token_id, expected in zip(others, token_ids[1:], log_probs, strict=True):
        ranked = sorted(range(VOCABULARY), key=lambda each: -expected[each])
        assert list(place) == list(dict.fromkeys([str(token_id), *map(str, ranked[:count])]))
        assert [each["rank"] for each in place.values()] == [1 + ranked.index(int(each)) for each in place]
        assert [each["logprob"] for each in place.values()] == pytest.approx(
            [expected[int(each)] for each in place], abs=CLOSE
        )


@pytest.mark.parametrize("count", [0, 2, -1])
async def test_prompt_log_probabilities(client: AsyncOpenAI, directory: Path, count: int) -> None:
    token_ids = encode(directory, PROMPT)
    log_probs = reference_log_probs(directory, token_ids)
    body = {"prompt_logprobs": count, "return_token_ids": True}
    chat = await client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=1, extra_body=body)
    completion = await client.completions.create(model=MODEL, prompt=token_ids, max_tokens=1, extra_body=body)
    for holder in (chat, completion.choices[0]):
        details = holder.model_extra or {}
        assert details["prompt_token_ids"] == token_ids
        likeliest = VOCABULARY if count == -1 else count
        check_prompt(details["prompt_logprobs"], token_ids, log_probs, likeliest)
        own = [place[str(each)] for place, each in zip(details["prompt_logprobs"][1:], token_ids[1:], strict=True)]
        assert "<s>" + "".join(each["decoded_token"] for each in own) == PROMPT


async def test_prompt_text(client: AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(
        model=MODEL, messages=MESSAGES, max_tokens=1, extra_body={"return_prompt_text": True}
    )
    assert (answer.model_extra or {})["prompt_text"] == PROMPT


async def test_special_tokens_have_log_probabilities_in_chats(client: AsyncOpenAI, directory: Path) -> None:
    fields = {**SAMPLED, "messages": MESSAGES, "logprobs": True, "top_logprobs": 2}
    body = {"return_token_ids": True}
    answer = await client.chat.completions.create(**fields, extra_body=body)
    (choice,) = answer.choices
    generated = (choice.model_extra or {})["token_ids"]
    assert answer.usage is not None
    assert BEGIN in generated[:-1]
    assert (generated[-1], choice.finish_reason) == (END, "stop")
    assert choice.logprobs is not None
    content = choice.logprobs.content or []
    assert len(content) == len(generated) == answer.usage.completion_tokens
    assert [entry.token for entry, token_id in zip(content, generated, strict=True) if token_id == BEGIN]
    assert {entry.token for entry, each in zip(content, generated, strict=True) if each == BEGIN} == {"<s>"}
    assert content[-1].token == "</s>"
    assert choice.message.content is not None
    assert "<s>" not in choice.message.content
    assert "</s>" not in choice.message.content
    prompt = (answer.model_extra or {})["prompt_token_ids"]
    expected = reference_log_probs(directory, prompt + generated)[len(prompt) - 1 :]
    for entry, token_id, place in zip(content, generated, expected, strict=True):
        assert entry.logprob == pytest.approx(place[token_id], abs=CLOSE)
        tops = [top.logprob for top in entry.top_logprobs]
        likeliest = sorted(place, reverse=True)[:2]
        assert tops == pytest.approx(
            likeliest if entry.logprob > likeliest[-1] - CLOSE else [*likeliest, place[token_id]], abs=CLOSE
        )
        assert entry.logprob in tops

    streamed: list[ChatCompletionTokenLogprob] = []
    told: list[int] = []
    text = ""
    async for chunk in await client.chat.completions.create(**fields, stream=True, extra_body=body):
        details = chunk.choices[0].logprobs
        assert details is None or details.content
        streamed += (details and details.content) or []
        told += (chunk.choices[0].model_extra or {}).get("token_ids") or []
        text += chunk.choices[0].delta.content or ""
    assert (streamed, told, text) == (content, generated, choice.message.content)


@pytest.mark.parametrize("logprobs", [0, 2])
async def test_special_tokens_have_log_probabilities_in_completions(client: AsyncOpenAI, logprobs: int) -> None:
    fields = {**SAMPLED, "prompt": PROMPT, "logprobs": logprobs, "echo": True}
    body = {"return_token_ids": True, "return_tokens_as_token_ids": True}
    answer = await client.completions.create(**fields, extra_body=body)
    (choice,) = answer.choices
    details = choice.model_extra or {}
    token_ids = details["prompt_token_ids"] + details["token_ids"]
    assert BEGIN in details["prompt_token_ids"]
    assert BEGIN in details["token_ids"]
    assert (token_ids[-1], choice.finish_reason) == (END, "stop")
    assert answer.usage is not None
    assert answer.usage.total_tokens == len(token_ids)
    assert choice.logprobs is not None
    assert choice.logprobs.tokens == [f"token_id:{each}" for each in token_ids]
    assert choice.logprobs.token_logprobs is not None
    assert choice.logprobs.top_logprobs is not None
    own = list(zip(choice.logprobs.tokens, choice.logprobs.token_logprobs, choice.logprobs.top_logprobs, strict=True))
    assert own[0][1:] == (None, None)
    for token, log_prob, likeliest in own[1:]:
        assert likeliest[token] == log_prob
        first, *others = likeliest
        assert first == token
        assert len(others) in (logprobs - 1, logprobs)
        assert others == sorted(others, key=lambda each: -likeliest[each])
    assert choice.text.startswith(PROMPT)
    assert "</s>" not in choice.text

    assert choice.logprobs.text_offset is not None
    assert choice.logprobs.text_offset[1] == len("<s>"), "which the client wrote"
    assert choice.logprobs.text_offset[len(details["prompt_token_ids"])] == len(PROMPT)

    tokens: list[str] = []
    offsets: list[int] = []
    told: list[int] = []
    async for chunk in await client.completions.create(**fields, stream=True, extra_body=body):
        written = chunk.choices[0].logprobs
        assert written is None or written.tokens
        tokens += (written and written.tokens) or []
        offsets += (written and written.text_offset) or []
        told += (chunk.choices[0].model_extra or {})["token_ids"]
    assert (tokens, told) == (choice.logprobs.tokens, details["token_ids"])
    assert offsets == choice.logprobs.text_offset


async def test_no_prompt_log_probabilities_in_a_stream(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="`prompt_logprobs` must be 0 or null with `stream`"):
        await client.chat.completions.create(
            model=MODEL, messages=MESSAGES, stream=True, extra_body={"prompt_logprobs": 1}
        )
