"""Rotary embeddings that depend on the length: each sequence has transformers' text, whatever runs beside it."""

from pathlib import Path
from typing import Any

import pytest
import torch

from lmi_core.errors import InvalidParameter
from lmi_core.generation.output import GenerationStep
from lmi_plugins.torch_engine.embeddings.hidden_states import PaddedStates
from lmi_plugins.torch_engine.embeddings.packed_states import PackedStates
from lmi_plugins.torch_engine.engine.engine import Engine
from lmi_plugins.torch_engine.messages.embeddings import EmbeddingInput
from lmi_plugins.torch_engine.messages.requests import EngineRequest
from lmi_plugins.torch_engine.model import runner_choice
from lmi_plugins.torch_engine.model.attention import UnsupportedAttention
from lmi_plugins.torch_engine.model.graph.openvino_runner import OpenVinoRunner
from lmi_plugins.torch_engine.model.paged_runner import PagedRunner
from lmi_plugins.torch_engine.model.rope_by_length import RopeByLength
from lmi_plugins.torch_engine.model.row_runner import RowRunner
from tests.plugins.torch_engine.test_engine_greedy import make_prompts
from tests.plugins.torch_engine.tiny_models import (
    CONFIGS,
    CONTEXT,
    ids,
    make_engine,
    reference_ids,
    reference_model,
    request,
    run,
    save_configured,
    save_tokenizer,
)

ORIGINAL = 40
LONGROPE = {
    "rope_type": "longrope",
    "short_factor": [1.0, 1.1, 1.2, 1.3],
    "long_factor": [1.5, 3.0, 6.0, 12.0],
    "original_max_position_embeddings": ORIGINAL,
}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "longrope": ("phi3", {"rope_parameters": LONGROPE, "original_max_position_embeddings": ORIGINAL}),
    "longrope-moe": (
        "phimoe",
        {
            "num_local_experts": 2,
            "rope_parameters": {**LONGROPE, "short_mscale": 1.2, "long_mscale": 1.6},
            "original_max_position_embeddings": ORIGINAL,
        },
    ),
    "dynamic": (
        "llama",
        {"max_position_embeddings": ORIGINAL, "rope_parameters": {"rope_type": "dynamic", "factor": 3.0}},
    ),
}
LENGTHS = [ORIGINAL + 30, 7, ORIGINAL - 3, ORIGINAL, ORIGINAL + 1, 70]  # of prompts; all but one end beyond ORIGINAL
COUNT = 10


@pytest.fixture(scope="module", params=MODELS)
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp(request.param)
    architecture, changes = MODELS[request.param]
    save_tokenizer(made)
    save_configured(made, architecture, {**CONFIGS.get(architecture, CONFIGS["llama"]), "pad_token_id": 0, **changes})
    return made


def expected_ids(directory: Path, prompt_ids: list[int], count: int = COUNT) -> list[int]:
    """Return what transformers generates after it has loaded the model: it may remember the longest sequence.

    Where it has to switch, transformers 5.19 drops its cache and reads the last token alone: without a cache it reads
    all tokens.
    """
    model = reference_model(directory)
    switches = model.config.rope_parameters["rope_type"] == "longrope"
    return reference_ids(model, prompt_ids, count, use_cache=not switches)


def expect(directory: Path, lengths: list[int] = LENGTHS, count: int = COUNT) -> tuple[list[EngineRequest], Any]:
    """Return requests, and what transformers generates for each of them."""
    prompts = make_prompts(lengths)
    requests = [request(str(place), prompt, max_new_tokens=count) for place, prompt in enumerate(prompts)]
    return requests, [expected_ids(directory, prompt, count) for prompt in prompts]


def generate(engine: Engine, requests: list[EngineRequest]) -> list[list[int]]:
    results = run(engine, *requests)
    return [ids(results[each.request_id]) for each in requests]


def refuse_cache(*arguments: Any) -> Any:
    raise UnsupportedAttention("for this test")


@pytest.mark.parametrize("paged", [True, False])
@pytest.mark.parametrize("max_prefill_tokens", [6, 512])
def test_alone_and_together(
    directory: Path, paged: bool, max_prefill_tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not paged:
        monkeypatch.setattr(runner_choice, "choose_paged_runner", refuse_cache)
    engine = make_engine(directory, max_prefill_tokens=max_prefill_tokens)
    assert engine.runner.paged is paged
    requests, expected = expect(directory)
    assert generate(engine, requests) == expected
    assert [generate(engine, [each])[0] for each in requests] == expected  # with their prefixes in the cache
    assert engine.pool.free == engine.pool.size


def test_models_with_a_form_of_their_own_are_not_split(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of = RopeByLength.of

    def find_nothing(*arguments: Any) -> RopeByLength | None:
        found = of(*arguments)
        if found is not None:
            found.modules = []
        return found

    monkeypatch.setattr(RopeByLength, "of", find_nothing)
    engine = make_engine(directory, max_prefill_tokens=6)
    assert isinstance(engine.runner, RowRunner)
    requests, expected = expect(directory, [ORIGINAL + 30, ORIGINAL - 3])
    assert [generate(engine, [each])[0] for each in requests] == expected


def test_conversations_find_their_prefixes(directory: Path) -> None:
    """A prefix is found again only with the frequencies that it was computed with."""
    engine = make_engine(directory)
    (prompt,) = make_prompts([36])
    for _ in range(3):
        for _ in range(2):
            answer = ids(run(engine, request("turn", prompt, max_new_tokens=COUNT))["turn"])
            assert answer == expected_ids(directory, prompt)
        prompt = prompt + answer + [7]
    assert engine.prefix_cache is not None
    assert engine.prefix_cache.cached_tokens > 0


def test_preempted_sequences_go_on(directory: Path) -> None:
    roomy = make_engine(directory)
    memory = 9 * roomy.limits.cache_bytes // roomy.pool.size
    engine = make_engine(directory, max_prefill_tokens=16, kv_cache_memory=memory)
    requests, expected = expect(directory, [34, 37, 30, 52], 40)
    assert generate(engine, requests) == expected


def test_drafts_end_where_everything_is_computed_again(directory: Path) -> None:
    (plain,), (expected,) = expect(directory, [ORIGINAL - 4], 20)
    drafted = EngineRequest("drafted", plain.prompt_ids, plain.parameters, draft_ids=expected[:12])
    assert generate(make_engine(directory), [drafted]) == [expected]


def test_a_draft_model_of_the_same_kind(directory: Path) -> None:
    engine = make_engine(directory, speculative_draft_model=str(directory))
    requests, expected = expect(directory)
    assert generate(engine, requests) == expected


def test_beams(directory: Path) -> None:
    engine = make_engine(directory)
    switches = engine.runner.rope is not None and not engine.runner.rope.grows
    for length, count in ((ORIGINAL - 8, 9), (ORIGINAL + 20, COUNT), (ORIGINAL - 8, COUNT)):
        (prompt,) = make_prompts([length])
        asked = request("beams", prompt, max_new_tokens=count, num_beams=2)
        if switches and length < ORIGINAL and count > 9:
            with pytest.raises(InvalidParameter, match=f"if a prompt of up to {ORIGINAL} tokens may grow"):
                engine.add(asked)
            continue
        steps = [step for step in run(engine, asked)["beams"] if isinstance(step, GenerationStep)]
        best = [token.id for step in steps for token in step.tokens if step.sequence_index == 0]
        assert best == reference_ids(reference_model(directory), prompt, count, num_beams=2)


def test_openvino_leaves_it_to_pytorch(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    engine = make_engine(directory, cpu_runner="openvino")
    assert not isinstance(engine.runner, OpenVinoRunner)
    assert "its rotary embedding depends on the length of the sequence" in caplog.text
    requests, expected = expect(directory, LENGTHS[:3])
    assert generate(engine, requests) == expected


@pytest.mark.parametrize("packed", [True, False])
def test_embeddings(directory: Path, packed: bool) -> None:
    texts = make_prompts(LENGTHS)
    model = reference_model(directory)
    rope = RopeByLength.of(model, CONTEXT)
    if packed:
        PagedRunner(model, CONTEXT)
    states = (PackedStates if packed else PaddedStates)(model.base_model, rope)
    with torch.inference_mode():
        for text, found in zip(texts, states.run([EmbeddingInput(text) for text in texts]), strict=True):
            expected = reference_model(directory).base_model(torch.tensor([text])).last_hidden_state[0]
            torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_models_that_stay_within_the_first_length(directory: Path) -> None:
    assert RopeByLength.of(reference_model(directory), ORIGINAL) is None
