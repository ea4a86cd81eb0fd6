"""How a request's tokens are written, and what comes with them."""

from pathlib import Path
from typing import Any

import pytest
import torch

from lmi_core.errors import InvalidParameter
from lmi_core.generation.output import GenerationStep, Token
from lmi_core.texts.huggingface_tokenizer import HuggingFaceTokenizer
from lmi_plugins.torch_engine.engine.engine import Engine
from tests.plugins.torch_engine.conftest import ModelDirectory, ReferenceModel
from tests.plugins.torch_engine.tiny_models import (
    BY_ROW,
    TEXT,
    VOCABULARY,
    ids,
    make_engine,
    reference_ids,
    request,
    run,
    save_model,
    save_tokenizer,
    text,
    tokens,
)

PROMPT = [5, 9, 200, 31, 77]
BEGIN, END = 0, 1  # the tokenizer's special tokens, <s> and </s>


@pytest.fixture
def greedy_ids(reference: ReferenceModel) -> list[int]:
    return reference_ids(reference("llama"), PROMPT, 20)


def generated(engine: Engine, **parameters: Any) -> tuple[list[Token], object]:
    """The tokens, and the finish reason."""
    results = run(engine, request("a", PROMPT, **{"max_new_tokens": 20, **parameters}))["a"]
    assert isinstance(results[-1], GenerationStep)
    return tokens(results), results[-1].finish_reason


def test_stop_tokens_end_the_generation_and_have_no_text(engine: Engine, greedy_ids: list[int]) -> None:
    stop = greedy_ids[6]
    length = greedy_ids.index(stop) + 1
    stopped, reason = generated(engine, stop_token_sequences=[[VOCABULARY - 1], [stop]])
    assert ([token.id for token in stopped], reason) == (greedy_ids[:length], "stop_sequence")
    assert (stopped[-1].text, stopped[-1].special) == ("", False)
    kept, reason = generated(engine, stop_token_sequences=[[stop]], include_stop=True)
    assert reason == "stop_sequence"
    whole, _ = generated(engine)
    assert [token.text for token in kept] == [token.text for token in whole[:length]]


def test_stop_token_sequences_are_held_back_and_have_no_text(engine: Engine, greedy_ids: list[int]) -> None:
    stop = greedy_ids[4:7]
    whole, _ = generated(engine)
    results = run(engine, request("a", PROMPT, max_new_tokens=20, stop_token_sequences=[stop, [stop[0], 3, 3]]))["a"]
    assert ids(results) == greedy_ids[:7]
    assert text(results) == "".join(token.text for token in whole[:4])
    assert isinstance(results[-1], GenerationStep)
    assert [token.id for token in results[-1].tokens] == stop
    assert results[-1].finish_reason == "stop_sequence"


def test_a_stop_sequence_can_be_part_of_the_text(engine: Engine) -> None:
    whole, _ = generated(engine)
    joined = "".join(token.text for token in whole)
    stop = joined[5:8]
    kept, reason = generated(engine, stop_sequences=[stop], include_stop=True)
    assert "".join(token.text for token in kept) == joined[: joined.index(stop) + len(stop)]
    assert reason == "stop_sequence"


@pytest.fixture
def ending(tmp_path: Path, greedy_ids: list[int]) -> Engine:
    """Return an engine for a model whose seventh greedy token is an end-of-sequence token."""
    save_tokenizer(tmp_path)
    save_model(tmp_path, "llama", greedy_ids[6])
    return make_engine(tmp_path)


def test_the_end_of_sequence_can_be_ignored(ending: Engine, greedy_ids: list[int]) -> None:
    whole, reason = generated(ending, ignore_end=True)
    assert ([token.id for token in whole], reason) == (greedy_ids, "length")
    assert [token.text for token in whole if token.id == greedy_ids[6]] == [""] * greedy_ids.count(greedy_ids[6])


def test_min_length_puts_the_end_of_sequence_off(ending: Engine, greedy_ids: list[int]) -> None:
    whole, _ = generated(ending, min_length=10)
    assert len(whole) > 10
    assert [token.id for token in whole[:10]].count(greedy_ids[6]) == 0
    exact, _ = generated(ending, min_length=greedy_ids.index(greedy_ids[6]))
    assert [token.id for token in exact] == greedy_ids[: greedy_ids.index(greedy_ids[6]) + 1]


def special_texts(engine: Engine, **parameters: Any) -> str:
    """Both special tokens in turn."""
    bias = {"logit_bias": {BEGIN: 1000.0, END: 980.0}, "frequency_penalty": 50.0}
    written, _ = generated(engine, max_new_tokens=2, **bias, **parameters)
    return "".join(token.text for token in written)


def test_special_tokens_are_left_out_unless_asked_for(engine: Engine, tokenizer: HuggingFaceTokenizer) -> None:
    assert special_texts(engine) == ""
    with_blanks = special_texts(engine, skip_special_tokens=False)
    without = special_texts(engine, skip_special_tokens=False, spaces_between_special_tokens=False)
    assert with_blanks.replace(" ", "") == without
    assert without == "<s></s>"
    assert with_blanks.count(" ") == 1


def test_a_shown_end_of_sequence_is_a_stop_like_others(tmp_path: Path) -> None:
    save_tokenizer(tmp_path)
    save_model(tmp_path, "llama", END)
    engine = make_engine(tmp_path)
    bias = {"logit_bias": {END: 1000.0}, "skip_special_tokens": False}
    for shown, parameters in [("", {}), ("</s>", {"include_stop": True}), ("</s> </s>", {"ignore_end": True})]:
        written, _ = generated(engine, max_new_tokens=2, **bias, **parameters)
        assert "".join(token.text for token in written) == shown


@pytest.mark.parametrize("architecture", ["llama", BY_ROW[0]])
def test_top_tokens_are_the_likeliest_of_a_full_forward_pass(
    architecture: str, model_directory: ModelDirectory, reference: ReferenceModel, tokenizer: HuggingFaceTokenizer
) -> None:
    prompt = tokenizer.encode(TEXT[:40])
    engine = make_engine(model_directory(architecture), max_prefill_tokens=8)
    asked = request(
        "a", prompt, max_new_tokens=6, num_top_tokens=4, prompt_log_probs=True, num_prompt_top_tokens=2, temperature=1.0
    )
    results = run(engine, asked, request("b", PROMPT, num_top_tokens=1), request("c", PROMPT))
    whole = [*prompt, *ids(results["a"])]
    with torch.inference_mode():
        log_probs = reference(architecture)(torch.tensor([whole])).logits[0].log_softmax(-1)
    first = results["a"][0]
    assert isinstance(first, GenerationStep)
    assert first.prefill is not None
    assert first.prefill[0].top_tokens is None
    for place, token in enumerate([*first.prefill, *tokens(results["a"])][1:]):
        count = 2 if place < len(prompt) - 1 else 4
        expected = log_probs[place].topk(count)
        assert token.top_tokens is not None
        assert [top.id for top in token.top_tokens] == expected.indices.tolist()
        assert [top.log_prob for top in token.top_tokens] == pytest.approx(expected.values.tolist(), abs=1e-4)
        assert token.log_prob == pytest.approx(log_probs[place, whole[place + 1]].item(), abs=1e-4)
        assert all(
            top.text.encode() == tokenizer.token_bytes(top.id) for top in token.top_tokens if "\ufffd" not in top.text
        )
    assert all(token.top_tokens and token.top_tokens[0].id == token.id for token in tokens(results["b"]))
    assert all(token.top_tokens is None for token in tokens(results["c"]))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"logit_bias": {VOCABULARY: 1.0}}, "`logit_bias` must contain token ids from 0 to 319. Given: 320"),
        ({"bad_sequences": [[3], [-1, 4]]}, "`bad_sequences` must contain token ids from 0 to 319. Given: -1"),
        ({"bad_sequences": [[]]}, "`bad_sequences` must each contain at least one token id"),
        ({"stop_token_sequences": [[VOCABULARY]]}, "`stop_token_ids` must contain token ids"),
        (
            {"eos_token_ids": [VOCABULARY]},
            "the end-of-sequence tokens must contain token ids from 0 to 319. Given: 320",
        ),
        ({"embedding_bias": b"\0" * 8}, "the embedding bias must have 320 numbers, one for each token. Given: 2"),
        ({"num_prompt_top_tokens": 2}, "require its log probabilities"),
    ],
)
def test_what_the_vocabulary_has_not_is_refused(engine: Engine, parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        engine.add(request("a", PROMPT, **parameters))
    assert not engine.has_work
