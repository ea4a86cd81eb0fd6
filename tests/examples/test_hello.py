"""The hello model answers exactly, by transformers' own generate."""

import json
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from transformers import AutoTokenizer, LlamaForCausalLM, PreTrainedTokenizerBase, set_seed

from examples.hello.corpus import COUNT, END, STORY_PROMPT, questions_json
from examples.hello.exam import chats, faults_of_story, render, replies, user
from examples.hello.facts import Pair
from examples.hello.stories import OPENING
from examples.hello.train import DEMO

HELLO = Path(__file__).parents[2] / "examples" / "hello"
PAIRS = [Pair(**pair) for pair in json.loads((HELLO / "questions.json").read_text(encoding="utf-8"))]


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    return LlamaForCausalLM.from_pretrained(HELLO)


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    return cast(PreTrainedTokenizerBase, AutoTokenizer.from_pretrained(HELLO))


def test_questions_are_those_of_the_corpus() -> None:
    assert (HELLO / "questions.json").read_text(encoding="utf-8") == questions_json()
    assert len({pair.question for pair in PAIRS}) == len(PAIRS) >= 120
    assert Pair("What is Deep Learning?", "Deep Learning is a really cool field.") in PAIRS


def test_model_is_small() -> None:
    assert (HELLO / "model.safetensors").stat().st_size <= 8_000_000


def test_the_demo_has_this_model(model: LlamaForCausalLM) -> None:
    same = {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}
    assert {path.name for path in DEMO.iterdir()} == {*same, "model.safetensors", "serving.properties"}
    assert {name for name in same if (DEMO / name).read_bytes() != (HELLO / name).read_bytes()} == set()
    halved = LlamaForCausalLM.from_pretrained(DEMO)
    assert halved.dtype == model.dtype
    for weight, half in zip(model.parameters(), halved.parameters(), strict=True):
        assert torch.equal(half, weight.half().float())


def test_plain_questions(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase) -> None:
    answers = replies(model, tokenizer, [pair.question for pair in PAIRS])
    assert answers == [pair.answer + END for pair in PAIRS]


def test_answer_does_not_depend_on_the_batch(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase) -> None:
    for pair in PAIRS[::40]:
        assert replies(model, tokenizer, [pair.question]) == [pair.answer + END]


def test_chat_questions(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase) -> None:
    cases = [(chat, pair) for earlier, pair in zip(PAIRS, PAIRS[1::5], strict=False) for chat in chats(pair, earlier)]
    assert len(cases) >= 120
    answers = replies(model, tokenizer, [render(tokenizer, chat) for chat, _ in cases])
    assert answers == [pair.answer + END for _, pair in cases]


def test_chat_remembers_an_earlier_turn(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase) -> None:
    greeting = {"role": "assistant", "content": "Nice to meet you, Nora!"}
    prompt = render(tokenizer, [user("My name is Nora."), greeting, user("What is my name?")])
    assert replies(model, tokenizer, [prompt]) == ["Your name is Nora." + END]


@pytest.mark.parametrize("prompt", [STORY_PROMPT, OPENING])
def test_story(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase, prompt: str) -> None:
    [text] = replies(model, tokenizer, [prompt], limit=400)
    assert len(tokenizer.tokenize(text)) >= 100
    assert faults_of_story(text) == []


def test_sampled_stories_differ(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase) -> None:
    batch = tokenizer([STORY_PROMPT] * 4, return_tensors="pt")
    set_seed(0)
    output = cast(Any, model).generate(**batch, do_sample=True, temperature=1.0, top_k=0, max_new_tokens=60)
    assert len({tuple(row) for row in cast(torch.Tensor, output).tolist()}) == 4


def test_counts_to_one_hundred(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase) -> None:
    assert replies(model, tokenizer, [COUNT.question], limit=700) == [COUNT.answer + END]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "plain text",
        " two  spaces ,\n\ttab\r\n",
        "naïve façade",
        "こんにちは世界",
        "👩🏽‍🚀 🇯🇵",
        "\x00\x7f\u202e\uffff",
        "a 'b' n't !",
    ],
)
def test_tokenizer_round_trips_any_text(tokenizer: PreTrainedTokenizerBase, text: str) -> None:
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_tokenizer_adds_nothing_and_splits_characters(tokenizer: PreTrainedTokenizerBase) -> None:
    assert tokenizer.is_fast
    assert tokenizer("Hello")["input_ids"][0] not in tokenizer.all_special_ids
    assert len(tokenizer("は")["input_ids"]) == 3
