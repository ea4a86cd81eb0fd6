"""Beam search on vLLM's outputs finds transformers' own sequences, in its order; on vLLM itself the torch engine's."""

import asyncio
import itertools
from pathlib import Path
from typing import Any

import pytest
import torch

from lmi_core.errors import GenerationFailed, InvalidParameter
from lmi_core.generation.output import GenerationStep
from lmi_core.generation.parameters import ExtendedParameters
from lmi_core.texts.huggingface_tokenizer import HuggingFaceTokenizer
from lmi_core.texts.token_writer import TokenWriter
from lmi_plugins.vllm_engine.library import CompletionOutput, RequestOutput, SamplingParams
from lmi_plugins.vllm_engine.outputs.beam_search import BeamSearch
from lmi_plugins.vllm_engine.requests.parameter_checks import check_beams
from tests.plugins.torch_engine.beams.test_search import END_IDS, expected
from tests.plugins.torch_engine.test_engine_greedy import make_prompts
from tests.plugins.torch_engine.tiny_models import reference_model, save_model, save_tokenizer

PROMPT = [5, 9, 200, 31, 77]


class Place:
    """A stand-in for vLLM's log probability of a token at a position."""

    def __init__(self, logprob: float) -> None:
        self.logprob = logprob
        self.rank = None


class OneByOne:
    """A model of transformers' that says of each next token what vLLM does."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.asked: list[SamplingParams] = []

    async def next_token(self, token_ids: list[int], parameters: SamplingParams) -> RequestOutput:
        self.asked.append(parameters)
        with torch.inference_mode():
            log_probs = self.model(torch.tensor([token_ids])).logits[0, -1].log_softmax(-1)
        best = log_probs.topk(parameters.logprobs)
        place = {i: Place(each) for i, each in zip(best.indices.tolist(), best.values.tolist(), strict=True)}
        return answer(token_ids, place, int(best.indices[0]))

    def search(self, token_ids: list[int], writer: TokenWriter, ends: list[int], **given: Any) -> list[GenerationStep]:
        search = BeamSearch(token_ids, ExtendedParameters(**given), writer, frozenset(ends))

        async def steps() -> list[GenerationStep]:
            return [step async for step in search.steps(self.next_token)]

        return asyncio.run(steps())


def answer(token_ids: list[int], place: dict[int, Place] | None, token_id: int) -> RequestOutput:
    log_probs: Any = None if place is None else [place]
    output = CompletionOutput(0, "", [token_id], None, log_probs, finish_reason="length")
    return RequestOutput("0", None, token_ids, None, [output], finished=True)


@pytest.fixture(scope="module")
def ending(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama whose sequences often end."""
    directory = tmp_path_factory.mktemp("ending")
    save_tokenizer(directory)
    save_model(directory, "llama", END_IDS)
    return directory


@pytest.fixture(scope="module")
def model(ending: Path) -> OneByOne:
    return OneByOne(reference_model(ending))


@pytest.fixture(scope="module")
def writer(ending: Path) -> TokenWriter:
    return TokenWriter(HuggingFaceTokenizer.load(str(ending)), frozenset(END_IDS))


def sequences(steps: list[GenerationStep]) -> list[list[int]]:
    assert [step.sequence_index for step in steps] == list(range(len(steps)))
    return [[token.id for token in step.tokens] for step in steps]


@pytest.mark.parametrize("early_stopping", [False, True])
@pytest.mark.parametrize("length_penalty", [1.0, 0.0, 2.5, -1.0])
def test_stops_where_transformers_does(
    model: OneByOne, writer: TokenWriter, length_penalty: float, early_stopping: bool
) -> None:
    options: dict[str, Any] = {"early_stopping": early_stopping, "length_penalty": length_penalty}
    for prompt, beams in itertools.product(make_prompts([1, 16, 33], seed=4), (2, 5)):
        steps = model.search(prompt, writer, END_IDS, max_new_tokens=20, num_beams=beams, **options)
        assert sequences(steps) == expected(model.model, prompt, 20, beams, **options)
        assert {step.finish_reason for step in steps} <= {"eos_token", "length"}


def test_goes_on_after_the_end_where_it_is_asked_to(model: OneByOne, writer: TokenWriter) -> None:
    steps = model.search(PROMPT, writer, END_IDS, max_new_tokens=20, num_beams=3, ignore_eos_token=True)
    assert sequences(steps) == sequences(model.search(PROMPT, writer, [], max_new_tokens=20, num_beams=3))
    assert {step.finish_reason for step in steps} == {"length"}


def test_does_not_end_before_the_fewest_tokens(model: OneByOne, writer: TokenWriter) -> None:
    for prompt in make_prompts([4, 17], seed=6):
        steps = model.search(prompt, writer, END_IDS, max_new_tokens=20, num_beams=4, min_length=6)
        assert sequences(steps) == expected(model.model, prompt, 20, 4, min_new_tokens=6)


def test_a_token_that_ends_nothing_is_not_held_back(model: OneByOne, writer: TokenWriter) -> None:
    given: dict[str, Any] = {"max_new_tokens": 20, "num_beams": 3, "min_length": 20}
    found = sequences(model.search(PROMPT, writer, END_IDS, ignore_eos_token=True, **given))
    assert found == sequences(model.search(PROMPT, writer, [], **given))
    assert any(token_id in END_IDS for ids in found for token_id in ids)


@pytest.mark.parametrize("stop", ["n", "r"])
def test_a_stop_sequence_ends_a_beam(model: OneByOne, writer: TokenWriter, ending: Path, stop: str) -> None:
    tokenizer = HuggingFaceTokenizer.load(str(ending))
    prompt = tokenizer.encode("jumps over")
    steps = model.search(prompt, writer, END_IDS, max_new_tokens=12, num_beams=3, stop_sequences=[stop])
    theirs = expected(model.model, prompt, 12, 3, stop_strings=[stop], tokenizer=tokenizer.pretrained)
    for step, whole in zip(steps, theirs, strict=True):
        generated = [token.id for token in step.tokens]
        assert generated == whole[: len(generated)]
        assert set(whole[len(generated) :]) <= {END_IDS[0]}  # which pads
        assert stop not in "".join(token.text for token in step.tokens)
    assert "stop_sequence" in {step.finish_reason for step in steps}
    assert {step.stop_sequence for step in steps if step.finish_reason == "stop_sequence"} == {stop}


def test_a_stop_token_ends_a_beam(model: OneByOne, writer: TokenWriter) -> None:
    (first, *_), *_ = sequences(model.search(PROMPT, writer, [], max_new_tokens=8, num_beams=2))
    steps = model.search(PROMPT, writer, [], max_new_tokens=8, num_beams=2, stop_token_ids=[first], length_penalty=0.0)
    assert [first] in sequences(steps)
    assert {step.finish_reason for step in steps if step.tokens[-1].id == first} == {"stop_sequence"}
    assert {step.stop_sequence for step in steps} == {None}


def test_tokens_come_with_their_log_probs_and_the_likeliest(model: OneByOne, writer: TokenWriter) -> None:
    best, *_ = model.search(PROMPT, writer, END_IDS, max_new_tokens=6, num_beams=2, top_n_tokens=3)
    generated = [token.id for token in best.tokens]
    with torch.inference_mode():
        log_probs = model.model(torch.tensor([PROMPT + generated])).logits[0, len(PROMPT) - 1 : -1].log_softmax(-1)
    own = log_probs[range(len(generated)), generated].tolist()
    assert [token.log_prob for token in best.tokens] == pytest.approx(own, abs=1e-4)
    likeliest = [[top.id for top in token.top_tokens or ()] for token in best.tokens]
    assert likeliest == log_probs.topk(3).indices.tolist()


async def test_fails_where_the_model_gives_no_numbers(writer: TokenWriter) -> None:
    async def nan(token_ids: list[int], parameters: SamplingParams) -> RequestOutput:
        return answer(token_ids, {1: Place(float("nan"))}, 1)

    async def aborted(token_ids: list[int], parameters: SamplingParams) -> RequestOutput:
        return answer(token_ids, None, 1)

    for next_token in (nan, aborted):
        search = BeamSearch(PROMPT, ExtendedParameters(num_beams=2), writer, frozenset())
        with pytest.raises(GenerationFailed):
            await anext(search.steps(next_token))


async def test_one_beam_that_fails_ends_the_others(model: OneByOne, writer: TokenWriter) -> None:
    ended: list[str] = []

    async def next_token(token_ids: list[int], parameters: SamplingParams) -> RequestOutput:
        if len(token_ids) == len(PROMPT):
            return await model.next_token(token_ids, parameters)
        if not ended:
            ended.append("failed")
            raise GenerationFailed("the engine died")
        try:
            return await asyncio.get_running_loop().create_future()
        finally:
            ended.append("cancelled")

    search = BeamSearch(PROMPT, ExtendedParameters(num_beams=3), writer, frozenset())
    with pytest.raises(GenerationFailed, match="the engine died"):
        await anext(search.steps(next_token))
    assert ended == ["failed", "cancelled", "cancelled"]


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"do_sample": True}, "do_sample"),
        ({"repetition_penalty": 1.2}, "repetition_penalty"),
        ({"presence_penalty": -0.5}, "presence_penalty"),
        ({"no_repeat_ngram_size": 2}, "no_repeat_ngram_size"),
        ({"logit_bias": {"3": 1.0}}, "logit_bias"),
        ({"bad_sequences": ["a"]}, "bad_sequences"),
        ({"allowed_token_ids": [5]}, "allowed_token_ids"),
        ({"reasoning_budget": {"tokens": 1, "ends": [[5]]}}, "reasoning_budget"),
        ({"guided_regex": "a+"}, "guided_regex"),
    ],
)
def test_refuses_what_beams_cannot_do(given: dict[str, Any], name: str) -> None:
    with pytest.raises(InvalidParameter, match=f"`num_beams` above 1 and `{name}` cannot be used together"):
        check_beams(ExtendedParameters(num_beams=2, **given))


def test_takes_what_changes_nothing() -> None:
    check_beams(ExtendedParameters(num_beams=2, do_sample=True, temperature=0.0, top_k=5, min_length=3, n=1))
