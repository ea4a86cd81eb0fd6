"""A soft prompt is the same as transformers' `inputs_embeds`, ahead of the prompt or anywhere in it."""

from typing import Any

import pytest
import torch

from lmi_core.errors import InvalidParameter
from lmi_plugins.torch_engine.messages.requests import EngineRequest, SamplingParameters
from tests.plugins.torch_engine.conftest import ModelDirectory, ReferenceModel
from tests.plugins.torch_engine.tensor_data import to_data
from tests.plugins.torch_engine.tiny_models import VOCABULARY, ids, make_engine, run, tokens

PROMPT = [5, 9, 200, 31, 77]
COUNT = 15
VIRTUAL = 6


def make_table(seed: int, hidden: int = 32) -> torch.Tensor:
    return torch.randn(VIRTUAL, hidden, generator=torch.Generator().manual_seed(seed)) * 0.5


def prompted(
    request_id: str, table: torch.Tensor | None, prompt_ids: list[int] = PROMPT, **parameters: Any
) -> EngineRequest:
    sampling = SamplingParameters(**{"max_new_tokens": COUNT, **parameters})
    return EngineRequest(request_id, prompt_ids, sampling, soft_prompt=None if table is None else to_data(table))


def reference_generation(model: Any, table: torch.Tensor, prompt_ids: list[int], **arguments: Any) -> list[int]:
    """The prompt's ids from the vocabulary's size on are rows of the table."""
    rows = torch.cat([model.get_input_embeddings().weight.data, table])
    embeddings = rows[torch.tensor([prompt_ids])]
    mask = torch.ones(1, len(prompt_ids), dtype=torch.long)
    output = model.generate(
        inputs_embeds=embeddings, attention_mask=mask, max_new_tokens=COUNT, do_sample=False, **arguments
    )
    generated: list[int] = output[0].tolist()
    return generated


AHEAD = [*range(VOCABULARY, VOCABULARY + VIRTUAL), *PROMPT]
WITHIN = [7, VOCABULARY + 2, 8, 9, VOCABULARY, VOCABULARY + VIRTUAL - 1]


@pytest.mark.parametrize("architecture", ["llama", "gpt2", "qwen3", "gptj", "bloom"])
def test_same_as_inputs_embeds(architecture: str, model_directory: ModelDirectory, reference: ReferenceModel) -> None:
    engine = make_engine(model_directory(architecture), max_prefill_tokens=4)
    tables = [make_table(seed) for seed in (1, 2)]
    results = run(
        engine,
        prompted("ahead", tables[0]),
        prompted("none", None),
        prompted("other", tables[1]),
        prompted("within", tables[0], WITHIN),
    )
    model = reference(architecture)
    assert ids(results["ahead"]) == reference_generation(model, tables[0], AHEAD)
    assert ids(results["none"]) == reference_generation(model, tables[0], PROMPT)
    assert ids(results["other"]) == reference_generation(model, tables[1], AHEAD)
    assert ids(results["within"]) == reference_generation(model, tables[0], WITHIN)
    assert ids(results["ahead"]) != ids(results["other"])


def test_blocks_are_shared_only_by_prompts_with_the_same_table(
    model_directory: ModelDirectory, reference: ReferenceModel
) -> None:
    engine = make_engine(model_directory("llama"))
    prompt = [VOCABULARY, *PROMPT * 8]
    for seed in (1, 2, 1):
        table = make_table(seed)
        expected = reference_generation(reference("llama"), table, prompt)
        assert ids(run(engine, prompted("a", table, prompt))["a"]) == expected


def test_preempted_sequences_go_on(model_directory: ModelDirectory, reference: ReferenceModel) -> None:
    roomy = make_engine(model_directory("llama"))
    engine = make_engine(model_directory("llama"), kv_cache_memory=6 * roomy.limits.cache_bytes // roomy.pool.size)
    results = run(engine, *[prompted(str(seed), make_table(seed), PROMPT * 5) for seed in range(5)])
    for seed in range(5):
        prompt = AHEAD[:VIRTUAL] + PROMPT * 5
        assert ids(results[str(seed)]) == reference_generation(reference("llama"), make_table(seed), prompt)


@pytest.mark.filterwarnings("ignore:Passing `repetition_penalty` with `inputs_embeds`")
def test_penalties_pass_over_virtual_tokens(model_directory: ModelDirectory, reference: ReferenceModel) -> None:
    engine = make_engine(model_directory("llama"))
    # transformers sees no prompt here, only embeddings, and penalizes what was generated.
    results = run(engine, prompted("a", make_table(1), AHEAD[:VIRTUAL], repetition_penalty=1.5))
    expected = reference_generation(reference("llama"), make_table(1), AHEAD[:VIRTUAL], repetition_penalty=1.5)
    assert ids(results["a"]) == expected
    assert len(tokens(results["a"])) == COUNT


def test_refuses_what_does_not_fit(model_directory: ModelDirectory) -> None:
    engine = make_engine(model_directory("llama"))
    with pytest.raises(InvalidParameter, match=r"\[virtual tokens, 32\], the model's hidden size. Given: \[6, 31\]"):
        engine.add(prompted("a", make_table(1, hidden=31)))
    with pytest.raises(InvalidParameter, match=f"outside the vocabulary of {VOCABULARY + VIRTUAL}"):
        engine.add(prompted("a", make_table(1), [VOCABULARY + VIRTUAL]))
    with pytest.raises(InvalidParameter, match=f"outside the vocabulary of {VOCABULARY}"):
        engine.add(prompted("a", None, [VOCABULARY]))
    with pytest.raises(InvalidParameter, match="its virtual tokens have none"):
        engine.add(prompted("a", make_table(1), prompt_log_probs=True))
    data = to_data(make_table(1))
    short = type(data)(data.dtype, data.shape, data.data[:-4])
    with pytest.raises(InvalidParameter, match=r"must have 768 bytes, and at least one element. Given: 764"):
        engine.add(EngineRequest("a", PROMPT, SamplingParameters(), soft_prompt=short))
    assert not engine.has_work
