"""Guided decoding. The weights are random, so that nothing but the guide makes the texts what they are."""

import json
import re
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import jsonschema_rs
import pytest

from lmi_core.errors import GenerationFailed, InvalidParameter, LmiError
from lmi_core.forks.forked_function import Cancellation
from lmi_core.generation.output import GenerationStep
from lmi_core.texts.huggingface_tokenizer import HuggingFaceTokenizer
from lmi_plugins.torch_engine.engine.engine import Engine
from lmi_plugins.torch_engine.guides.compiling import GuideCompiler
from lmi_plugins.torch_engine.guides.grammar_cache import GrammarCache
from lmi_plugins.torch_engine.messages.requests import EngineRequest, Guide
from tests.plugins.torch_engine.conftest import ModelDirectory, ReferenceModel
from tests.plugins.torch_engine.tiny_models import (
    BY_ROW,
    CONTEXT,
    ids,
    make_engine,
    reference_ids,
    request,
    run,
    text,
    tokens,
)

if TYPE_CHECKING:
    from xgrammar import CompiledGrammar

Kind = Literal["choice", "json", "regex", "grammar", "structural_tag"]

PROMPT = [5, 9, 200, 31, 77]
CHOICES = ["yes", "no", 'a "quoted" \\ back\nslash', "Grüße 🙂"]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 5},
        "kind": {"enum": ["cat", "dog"]},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2},
    },
    "required": ["name", "kind", "age", "tags"],
    "additionalProperties": False,
}
REGEX = r"[A-Z]{2}-\d{3}(\.[a-f]{1,4}){1,2}z"
GRAMMAR = 'root ::= sum\nsum ::= number (" + " number)? ";"\nnumber ::= [0-9]'


def guided(request_id: str, kind: Kind, content: str | list[str], **parameters: Any) -> EngineRequest:
    guide = Guide(kind, content)
    return request(request_id, PROMPT, **{"max_new_tokens": 100, "guide": guide, **parameters})


def has_ended(result: list[GenerationStep | LmiError]) -> bool:
    return isinstance(result[-1], GenerationStep) and result[-1].finish_reason == "eos_token"


def is_json_of_the_schema(written: str) -> bool:
    return bool(jsonschema_rs.is_valid(SCHEMA, json.loads(written)))


ONE_TAG = {"begin": "<", "content": {"type": "json_schema", "json_schema": SCHEMA}, "end": ">"}
TAG = {"type": "structural_tag", "format": {"type": "tag", **ONE_TAG}}


GUIDES: dict[str, tuple[Kind, str | list[str], Callable[[str], bool]]] = {
    "choice": ("choice", CHOICES, lambda written: written in CHOICES),
    "json": ("json", json.dumps(SCHEMA), is_json_of_the_schema),
    "regex": ("regex", REGEX, lambda written: re.fullmatch(REGEX, written) is not None),
    "grammar": ("grammar", GRAMMAR, lambda written: re.fullmatch(r"\d( \+ \d)?;", written) is not None),
    "structural_tag": (
        "structural_tag",
        json.dumps(TAG),
        lambda written: written[0] + written[-1] == "<>" and is_json_of_the_schema(written[1:-1]),
    ),
}


@pytest.fixture(scope="module")
def engines(engine: Engine, model_directory: ModelDirectory) -> dict[str, Engine]:
    return {"llama": engine, BY_ROW[0]: make_engine(model_directory(BY_ROW[0]))}


@pytest.mark.parametrize("name", GUIDES)
@pytest.mark.parametrize("architecture", ["llama", BY_ROW[0]])
def test_texts_are_what_the_guide_says(architecture: str, name: str, engines: dict[str, Engine]) -> None:
    kind, content, is_right = GUIDES[name]
    engine = engines[architecture]
    sampled = [guided(str(seed), kind, content, temperature=1.5, seed=seed) for seed in range(12)]
    results = run(engine, guided("greedy", kind, content), *sampled)
    for each in results.values():
        assert is_right(text(each)), text(each)
        assert isinstance(each[-1], GenerationStep)
        assert each[-1].finish_reason == "eos_token"
    assert len({text(each) for each in results.values()}) > 1


@pytest.mark.parametrize("name", GUIDES)
def test_texts_after_a_reasoning_are_what_the_guide_says(engine: Engine, name: str) -> None:
    """Random weights write what ends the reasoning sooner or later, where that is one letter."""
    kind, content, is_right = GUIDES[name]
    guide = Guide(kind, content, ["", "e"])
    results = run(
        engine,
        *(
            request(str(seed), PROMPT, max_new_tokens=CONTEXT - len(PROMPT), guide=guide, temperature=1.5, seed=seed)
            for seed in range(8)
        ),
    )
    ended = [text(each).partition("e")[2].strip() for each in results.values() if has_ended(each)]
    assert ended
    assert all(is_right(written) for written in ended), ended


def test_each_row_has_its_own_guide(engine: Engine, reference: ReferenceModel) -> None:
    requests = [
        guided(f"{name} {seed}", kind, content, temperature=1.0, seed=seed)
        for name, (kind, content, _) in GUIDES.items()
        for seed in range(3)
    ]
    alone = {each.request_id: text(run(engine, each)[each.request_id]) for each in requests}
    results = run(engine, *requests, request("free", PROMPT, max_new_tokens=20))
    assert {each.request_id: text(results[each.request_id]) for each in requests} == alone
    assert ids(results["free"]) == reference_ids(reference("llama"), PROMPT, 20)


def test_several_sequences_follow_one_guide_each_by_itself(engine: Engine) -> None:
    results = run(engine, guided("a", "regex", REGEX, temperature=2.0, seed=1, num_samples=6))["a"]
    steps = [result for result in results if isinstance(result, GenerationStep)]
    texts = [
        "".join(token.text for step in steps if step.sequence_index == i for token in step.tokens) for i in range(6)
    ]
    assert all(re.fullmatch(REGEX, each) for each in texts)
    assert len(set(texts)) > 1


def test_the_end_comes_only_when_the_guide_is_complete(engine: Engine, tokenizer: HuggingFaceTokenizer) -> None:
    end_id = tokenizer.pretrained.eos_token_id
    results = run(engine, guided("a", "regex", "[ab]{7,9}", logit_bias={end_id: 1000.0}))["a"]
    assert len(text(results)) == 7
    assert ids(results)[-1] == end_id


def test_an_ended_guide_ends_the_text_whatever_else_is_asked_for(engine: Engine) -> None:
    results = run(engine, guided("a", "choice", ["yes"], ignore_end=True))["a"]
    assert text(results) == "yes"
    assert tokens(results)[-1].special


def test_a_guide_that_is_cut_short_is_as_long_as_was_asked_for(engine: Engine) -> None:
    results = run(engine, guided("a", "choice", ["a very long answer"], max_new_tokens=3))["a"]
    assert "a very long answer".startswith(text(results))
    assert isinstance(results[-1], GenerationStep)
    assert results[-1].finish_reason == "length"


@pytest.mark.parametrize(
    ("kind", "content", "message"),
    [
        (
            "regex",
            "(a",
            "`guided_regex` cannot be used: Regex parsing error at position 3: The parenthesis is not closed",
        ),
        ("regex", r"(a)\1", "Backreference is not supported"),
        ("json", '{"type": "nope"}', '`guided_json` cannot be used: Unsupported type "nope"'),
        ("json", '{"not": {}}', "`not` in a JSON schema is not supported"),
        ("json", '{"anyOf": 3}', "`guided_json` cannot be used: "),
        (
            "structural_tag",
            '{"format": {"type": "nope"}}',
            "`guided_structural_tag` cannot be used: Invalid structural tag.*: nope",
        ),
        (
            "structural_tag",
            json.dumps(
                {"format": {"type": "sequence", "elements": [{"type": "json_schema", "json_schema": {"not": {}}}]}}
            ),
            "`guided_structural_tag` cannot be used: `not` in a JSON schema is not supported",
        ),
        ("grammar", "start: nope", "`guided_grammar` cannot be used: .*unknown name 'nope'"),
        ("grammar", "root ::= nope", '`guided_grammar` cannot be used: .*Rule "nope" is not defined'),
    ],
)
def test_a_wrong_guide_fails_its_request_alone(
    kind: Kind, content: str, message: str, engine: Engine, reference: ReferenceModel
) -> None:
    results = run(engine, guided("bad", kind, content), request("good", PROMPT, max_new_tokens=9))
    (error,) = results["bad"]
    assert isinstance(error, InvalidParameter)
    assert re.search(message, error.message), error.message
    assert ids(results["good"]) == reference_ids(reference("llama"), PROMPT, 9)
    assert engine.pool.free == engine.pool.size


def test_no_token_left_fails_the_request_alone(engine: Engine, reference: ReferenceModel) -> None:
    results = run(
        engine,
        guided("bad", "choice", ["yes"], min_length=50),
        request("good", PROMPT, max_new_tokens=9),
    )
    assert isinstance(results["bad"][-1], GenerationFailed)
    assert "exclude all tokens" in str(results["bad"][-1])
    assert ids(results["good"]) == reference_ids(reference("llama"), PROMPT, 9)


class SlowCompiler(GuideCompiler):
    """Compiles when it is told to."""

    def __init__(self, compiler: GuideCompiler) -> None:
        self.__dict__.update(compiler.__dict__)
        self.cache = GrammarCache()
        self.go_on = threading.Event()

    def compile(self, guide: Guide, cancellation: Cancellation | None = None) -> "CompiledGrammar":
        self.go_on.wait()
        return super().compile(guide, cancellation)


@pytest.fixture
def slow(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> tuple[Engine, SlowCompiler]:
    compiler = SlowCompiler(engine.guides._compiler)
    monkeypatch.setattr(engine.guides, "_compiler", compiler)
    return engine, compiler


def test_running_streams_do_not_wait_for_a_guide(slow: tuple[Engine, SlowCompiler]) -> None:
    engine, compiler = slow
    engine.add(request("stream", PROMPT, max_new_tokens=CONTEXT))
    engine.add(guided("a", "choice", ["yes"]))
    for _ in range(30):
        assert [request_id for request_id, _ in engine.step()] == ["stream"]
    compiler.go_on.set()
    results = []
    while engine.has_work:
        results += [result for request_id, result in engine.step() if request_id == "a"]
    assert text(results) == "yes"


def test_a_request_can_be_aborted_before_its_guide_is_there(slow: tuple[Engine, SlowCompiler]) -> None:
    engine, compiler = slow
    engine.add(guided("a", "choice", ["yes"]))
    assert engine.step() == []
    assert engine.has_work
    engine.abort("a")
    assert not engine.has_work
    compiler.go_on.set()
    assert text(run(engine, guided("a", "choice", ["no"]))["a"]) == "no"


def test_compiled_guides_are_kept(engine: Engine) -> None:
    compiler = engine.guides._compiler
    grammar = compiler.compile(Guide("regex", "[a-z]{1,20}kept"))
    assert compiler.compile(Guide("regex", "[a-z]{1,20}kept")) is grammar
    assert compiler.cache.bytes >= grammar.memory_size_bytes > 0


def test_a_mask_that_takes_too_long_ends_its_request_alone(engine: Engine, reference: ReferenceModel) -> None:
    cache = engine.guides._compiler.cache
    before = cache.bytes
    late = guided(
        "late", "regex", "x{60}((.{1,99}){1,99}){1,99}", max_new_tokens=100
    )  # cheap as far as it is tried out
    results = run(engine, late, request("good", PROMPT, max_new_tokens=CONTEXT - len(PROMPT)))
    error = results["late"][-1]
    assert isinstance(error, InvalidParameter)
    assert "at most 50 ms of CPU time" in error.message
    assert ids(results["good"]) == reference_ids(reference("llama"), PROMPT, CONTEXT - len(PROMPT))
    (again,) = run(engine, late)["late"]
    assert isinstance(again, InvalidParameter)
    assert again.message == error.message
    assert cache.bytes == before, "the refusal replaces the grammar"
    assert engine.pool.free == engine.pool.size
