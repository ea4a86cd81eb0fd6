"""Bad texts do not come, whatever chooses the tokens: the model has random weights, and writes texts in any split."""

from typing import Any

import pytest

from lmi_core.errors import GenerationFailed
from lmi_core.generation.output import GenerationStep
from lmi_core.texts.huggingface_tokenizer import HuggingFaceTokenizer
from lmi_plugins.torch_engine.engine.engine import Engine
from lmi_plugins.torch_engine.messages.requests import EngineRequest, Guide, SamplingParameters
from lmi_plugins.torch_engine.messages.results import Result
from lmi_plugins.torch_engine.sampling.exclusions import exclude_bad_texts
from lmi_plugins.torch_engine.sampling.processing import processors_of
from tests.plugins.torch_engine.conftest import ModelDirectory
from tests.plugins.torch_engine.tiny_models import ids, make_engine, request, run, text

PROMPT = [5, 9, 200, 31, 77]
COUNT = 60


def found_texts(engine: Engine, **parameters: Any) -> list[str]:
    """Several, where sampling with different seeds gives them."""
    requests = [
        request(f"{seed}", PROMPT, **{"max_new_tokens": COUNT, "seed": seed, **parameters})
        for seed in range(1 if parameters.get("temperature", 0) == 0 else 10)
    ]
    return [whole for results in run(engine, *requests).values() for whole in each_text(results)]


def each_text(results: list[Result]) -> list[str]:
    """The text of each of a request's sequences."""
    texts: dict[int, str] = {}
    for step in results:
        assert isinstance(step, GenerationStep), step
        texts[step.sequence_index] = texts.get(step.sequence_index, "") + text([step])
    return list(texts.values())


def parts(texts: list[str]) -> list[str]:
    """Short texts that are really written, some of them across tokens."""
    places = [(place, 1 + place % 4) for place in range(0, 40, 3)]
    cut = [whole[place : place + length] for whole in texts for place, length in places]
    return sorted({part for part in cut if part and "\ufffd" not in part}, key=len, reverse=True)[:40]


@pytest.fixture(scope="module")
def drafting(model_directory: ModelDirectory) -> Engine:
    """A draft model of the same weights, which drafts bad texts."""
    return make_engine(model_directory("llama"), speculative_draft_model=str(model_directory("llama")))


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"temperature": 1.0},
        {"temperature": 3.0, "top_k": 40},
        {"num_beams": 3, "max_new_tokens": 30},
        {"temperature": 1.0, "num_samples": 2},
        {"repetition_penalty": 1.3, "no_repeat_ngram_size": 3},
    ],
    ids=str,
)
@pytest.mark.parametrize("drafts", [False, True])
def test_no_bad_text_is_written(engine: Engine, drafting: Engine, parameters: dict[str, Any], drafts: bool) -> None:
    chosen = drafting if drafts else engine
    without = found_texts(chosen, **parameters)
    bad = parts(without)
    assert bad
    for whole in found_texts(chosen, **parameters, bad_texts=bad):
        assert len(whole) > 5
        assert not [each for each in bad if each in whole]


def test_drafts_change_nothing(engine: Engine, drafting: Engine) -> None:
    bad = parts(found_texts(engine))
    requests = [request("a", PROMPT, max_new_tokens=COUNT, bad_texts=bad)]
    plain, drafted = (ids(run(each, *requests)["a"]) for each in (engine, drafting))
    assert plain == drafted
    given = EngineRequest("a", PROMPT, requests[0].parameters, draft_ids=ids(run(engine, request("a", PROMPT))["a"]))
    assert ids(run(engine, given)["a"]) == plain


def test_beside_others(engine: Engine) -> None:
    """One request's bad texts are no other's."""
    bad = parts(found_texts(engine))
    alone = [ids(run(engine, each)["a"]) for each in (request("a", PROMPT), request("a", PROMPT, bad_texts=bad))]
    both = run(engine, request("a", PROMPT), request("b", PROMPT, bad_texts=bad), request("c", PROMPT))
    assert [ids(both[name]) for name in "abc"] == [alone[0], alone[1], alone[0]]
    assert alone[0] != alone[1]


def test_only_what_would_complete_a_bad_text_is_left_out(engine: Engine) -> None:
    """A text that the model does not write changes nothing."""
    plain = ids(run(engine, request("a", PROMPT, max_new_tokens=COUNT))["a"])
    assert ids(run(engine, request("a", PROMPT, max_new_tokens=COUNT, bad_texts=["never written"]))["a"]) == plain


def test_the_prompt_may_hold_it(engine: Engine, tokenizer: HuggingFaceTokenizer) -> None:
    prompt = tokenizer.encode("Hello world")
    free = text(run(engine, request("a", prompt, max_new_tokens=10))["a"])
    across = "world" + free[:1]
    assert text(run(engine, request("a", prompt, max_new_tokens=10, bad_texts=[across]))["a"]) == free


@pytest.mark.parametrize("architecture", ["trocr", "mamba"])
def test_models_that_run_by_themselves(architecture: str, model_directory: ModelDirectory) -> None:
    engine = make_engine(model_directory(architecture))
    bad = parts(found_texts(engine))
    assert not [each for each in bad if each in found_texts(engine, bad_texts=bad)[0]]


def test_a_guide_keeps_both_to_its_rule_and_out_of_bad_texts(engine: Engine) -> None:
    guide = Guide("regex", "[a-c]{6}")
    for whole in found_texts(engine, temperature=2.0, guide=guide, bad_texts=["ab", "c", "bb"]):
        assert len(whole) == 6
        assert set(whole) <= {"a", "b"}
        assert not [each for each in ("ab", "bb") if each in whole]


def test_a_guide_that_allows_nothing_else_fails_its_request(engine: Engine) -> None:
    asked = request("a", PROMPT, guide=Guide("choice", ["apple"]), bad_texts=["ppl"])
    results = run(engine, asked, request("b", PROMPT, max_new_tokens=5))
    assert isinstance(results["a"][-1], GenerationFailed)
    assert "exclude all tokens" in results["a"][-1].message
    assert len(ids(results["b"])) == 5


def test_special_tokens_and_other_bytes_remain(tokenizer: HuggingFaceTokenizer, engine: Engine) -> None:
    """Special tokens and other bytes remain when all characters are excluded."""
    bad = [chr(number) for number in range(128)]
    allowed = tokenizer.hidden_ids | {i for i in range(tokenizer.vocabulary_size) if tokenizer.token_bytes(i)[0] > 127}
    for seed in range(5):
        asked = request("a", PROMPT, max_new_tokens=20, temperature=3.0, seed=seed, bad_texts=bad)
        found = ids(run(engine, asked)["a"])
        assert set(found) <= allowed
        assert len(found) == 20


def test_costs_nothing_where_nothing_is_bad(model_directory: ModelDirectory) -> None:
    assert processors_of(SamplingParameters()) == ()
    assert processors_of(SamplingParameters(bad_texts=["a"])) == (exclude_bad_texts,)
    fresh = make_engine(model_directory("llama"))
    run(fresh, request("a", PROMPT))
    assert fresh.inputs.token_indexes._indexes == {}, "no index of the vocabulary is made"
