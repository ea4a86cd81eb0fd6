"""A request gives the same answer alone and in any company: the same tokens, and log probabilities within a bound.

Alone it runs in an engine that computes its prompt at once and caches nothing. In company its prompt is cut into pieces
and partly found in the prefix cache, memory runs out, so that it is preempted, and others come, end and are aborted.
"""

from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lmi_core.errors import LmiError
from lmi_core.generation.output import GenerationStep, Token
from lmi_plugins.torch_engine.engine.engine import Engine
from lmi_plugins.torch_engine.messages.requests import EngineRequest, Guide, Repetition, SamplingParameters
from lmi_plugins.torch_engine.messages.results import Result
from tests.plugins.torch_engine.adapters.lora_adapters import save_adapter
from tests.plugins.torch_engine.conftest import ModelDirectory, ReferenceModel
from tests.plugins.torch_engine.tiny_models import make_engine, run

LOG_PROB_BOUND = 1e-4  # of the difference, as sums of float32 depend on the shape of the batch in their last digits
BLOCKS = 14
SUBJECT = "subject"
ADAPTERS = ("french", "german")
HEAD = [7 + 3 * number % 50 for number in range(56)]

SAMPLING: list[dict[str, Any]] = [
    {},
    {"temperature": 1.0},
    {"temperature": 1.5, "top_p": 0.9},
    {"temperature": 0.8, "top_k": 20, "min_p": 0.01},
    {"temperature": 1.2, "typical_p": 0.9, "top_p": 0.95},
]
OTHERS: list[dict[str, Any]] = [
    {},
    {"num_top_tokens": 3, "ranks": True},
    {"prompt_log_probs": True},
    {"repetition_penalty": 1.3, "frequency_penalty": 0.5},
    {"presence_penalty": 0.7, "penalize_prompt": True},
    {"no_repeat_ngram_size": 2, "logit_bias": {9: 4.0, 20: -5.0}},
    {"bad_sequences": [[9], [20, 21]], "bad_texts": ["e"]},
    {"stop_sequences": ["a", "qu"], "min_length": 3},
    {"eos_token_ids": [30, 40, 50, 60, 70]},
    {"repetition": Repetition(1, 4, 2)},
    {"guide": Guide("regex", "([a-d]{2} ){2,20}")},
    {"guide": Guide("choice", ["one", "another", "none at all"])},
    {"cache_salt": "salt"},
    {"allowed_ids": [5, 6, 7, 8, 9, 10, 11]},
]
BEAMS: list[dict[str, Any]] = [{"num_beams": 2}, {"num_beams": 3, "length_penalty": 2.0}]


class Guest(NamedTuple):
    """Another request, when it comes and when it is aborted, in steps."""

    request: EngineRequest
    comes: int
    leaves: int | None


@st.composite
def requests(draw: st.DrawFn, name: str, seeded: bool) -> EngineRequest:
    """Draw a request whose prompt begins like others'; if `seeded`, one that has one right answer."""
    prompt = HEAD[: draw(st.integers(0, len(HEAD)))] + draw(st.lists(st.integers(2, 90), min_size=1, max_size=6))
    parameters: dict[str, Any] = {"max_new_tokens": draw(st.integers(1, 30))}
    sampling = draw(st.sampled_from(SAMPLING))
    if sampling or not draw(st.sampled_from([False, False, True])):
        parameters |= sampling | draw(st.sampled_from(OTHERS))
        parameters["num_samples"] = draw(st.sampled_from([1, 1, 2, 3]))
        parameters["seed"] = draw(st.integers(0, 9)) if seeded or draw(st.booleans()) else None
    else:
        parameters |= draw(st.sampled_from(BEAMS))
    adapter = draw(st.sampled_from([None, None, *ADAPTERS]))
    return EngineRequest(name, prompt, SamplingParameters(**parameters), adapter)


@st.composite
def companies(draw: st.DrawFn) -> list[Guest]:
    comes = draw(st.lists(st.integers(0, 25), max_size=7))
    return [
        Guest(draw(requests(f"guest {i}", False)), at, draw(st.sampled_from([None, None, at + 1, at + 4, at + 12])))
        for i, at in enumerate(comes)
    ]


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory, reference: ReferenceModel) -> dict[str, str]:
    folder: Path = tmp_path_factory.mktemp("adapters")
    return {name: str(save_adapter(folder / name, reference("llama"), i)) for i, name in enumerate(ADAPTERS)}


@pytest.fixture(scope="module")
def quiet(model_directory: ModelDirectory, adapters: dict[str, str]) -> Engine:
    return make_engine(model_directory("llama"), enable_prefix_caching=False, adapters=adapters)


@pytest.fixture(scope="module")
def crowded(quiet: Engine, model_directory: ModelDirectory, adapters: dict[str, str]) -> Engine:
    memory = BLOCKS * quiet.limits.cache_bytes // quiet.pool.size
    directory, options = model_directory("llama"), {"max_batch_size": 4, "max_prefill_tokens": 20, "max_loras": 1}
    engine = make_engine(directory, kv_cache_memory=memory, adapters=adapters, **options)
    assert engine.pool.size == BLOCKS
    return engine


def in_company(engine: Engine, subject: EngineRequest, comes: int, company: list[Guest]) -> list[Result]:
    """Run all requests, each from its own step on; return the results of the subject."""
    guests = [*company, Guest(subject, comes, None)]
    found: list[Result] = []
    step = 0
    while engine.has_work or any(guest.comes >= step for guest in guests):
        for guest in guests:
            if guest.comes == step:
                engine.add(guest.request)
            if guest.leaves == step:
                engine.abort(guest.request.request_id)
        found += [result for request_id, result in engine.step() if request_id == SUBJECT]
        step += 1
    return found


class Answer(NamedTuple):
    """What must be the same exactly, and what within the bound."""

    exact: list[Any]
    log_probs: list[float]


def answer(results: list[Result]) -> Answer:
    failures = [str(each) for each in results if isinstance(each, LmiError)]
    steps = [each for each in results if isinstance(each, GenerationStep)]
    exact: list[Any] = [failures]
    log_probs: list[float] = []
    for index in sorted({step.sequence_index for step in steps}):
        own = [step for step in steps if step.sequence_index == index]
        told = [token for step in own for token in [*(step.prefill or []), *step.tokens]]
        exact.append([own[-1].finish_reason, own[-1].stop_sequence, [plain(token) for token in told]])
        log_probs += [value for token in told for value in values(token)]
    return Answer(exact, log_probs)


def plain(token: Token) -> tuple[Any, ...]:
    return token.id, token.text, token.rank, [each.id for each in token.top_tokens or ()]


def values(token: Token) -> list[float]:
    return [each.log_prob for each in (token, *(token.top_tokens or ())) if each.log_prob is not None]


@settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(subject=requests(SUBJECT, True), comes=st.integers(0, 25), company=companies())
def test_an_answer_is_the_same_in_any_company(
    quiet: Engine, crowded: Engine, subject: EngineRequest, comes: int, company: list[Guest]
) -> None:
    alone = answer(run(quiet, subject)[SUBJECT])
    found = answer(in_company(crowded, subject, comes, company))
    assert found.exact == alone.exact
    assert found.log_probs == pytest.approx(alone.log_probs, abs=LOG_PROB_BOUND)
    assert crowded.pool.free == BLOCKS
    assert not crowded.requests.groups


@settings(max_examples=10, deadline=None, derandomize=True, database=None)
@given(subject=requests(SUBJECT, True), copies=st.integers(2, 6))
def test_equal_requests_at_once_get_equal_answers(crowded: Engine, subject: EngineRequest, copies: int) -> None:
    every = [msgspec.structs.replace(subject, request_id=str(number)) for number in range(copies)]
    answers = [answer(results) for results in run(crowded, *every).values()]
    for each in answers[1:]:
        assert each.exact == answers[0].exact
        assert each.log_probs == pytest.approx(answers[0].log_probs, abs=LOG_PROB_BOUND)
