"""Logits processors in vLLM's engine, compared with those of transformers."""

import math
from collections import Counter

import pytest
import torch
from transformers import NoRepeatNGramLogitsProcessor, TypicalLogitsWarper

from lmi_plugins.vllm_engine.requests.logits_processors import exclude_repeats, keep_typical
from tests.plugins.torch_engine.tiny_models import reference_model
from tests.plugins.vllm_server import HELLO, STORY, VllmServer, ids

pytestmark = pytest.mark.timeout(300)

AT_A_TIME, TIMES = 64, 8


@pytest.mark.parametrize("mass", [0.05, 0.2, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("seed", range(5))
def test_typical_as_transformers_has_it(mass: float, seed: int) -> None:
    logits = torch.randn(200, generator=torch.Generator().manual_seed(seed)) * 3
    expected = TypicalLogitsWarper(mass)(torch.empty(0), logits[None])[0]
    assert torch.equal(keep_typical(logits, mass), expected)


@pytest.mark.parametrize("size", [1, 2, 3, 9])
def test_repeats_as_transformers_has_them(size: int) -> None:
    token_ids = [1, 2, 3, 1, 2, 4, 1, 2]
    logits = torch.zeros(6)
    expected = NoRepeatNGramLogitsProcessor(size)(torch.tensor([token_ids]), logits[None])[0]
    assert torch.equal(exclude_repeats(logits, token_ids, size), expected)


@pytest.mark.asyncio(loop_scope="session")
async def test_the_distribution_of_typical_sampling(vllm: VllmServer) -> None:
    """First tokens of many answers, against what transformers makes of the model's own log probs."""
    mass, temperature, prompt = 0.6, 2.0, "The"
    output = await vllm.vllm(prompt, temperature=0.0, logprobs=-1, max_tokens=1)
    place = output.outputs[0].logprobs[0]
    logits = torch.tensor([place[i].logprob for i in range(len(place))]) / temperature
    expected = TypicalLogitsWarper(mass)(torch.empty(0), logits[None])[0].softmax(-1)
    found: Counter[int] = Counter()
    for seed in range(TIMES):
        sampling = {"do_sample": True, "seed": 1000 * seed, "temperature": temperature, "max_new_tokens": 1}
        answer = await vllm.ask(prompt, typical_p=mass, best_of=AT_A_TIME, n=AT_A_TIME, **sampling)
        sequences = [answer["details"], *answer["details"]["best_of_sequences"]]
        found.update(sequence["tokens"][0]["id"] for sequence in sequences)
    count = AT_A_TIME * TIMES
    assert sum(found.values()) == count
    assert all(expected[token_id] > 0 for token_id in found)
    for token_id, share in enumerate(expected.tolist()):
        deviation = math.sqrt(count * share * (1 - share))
        assert abs(found[token_id] - count * share) <= 5 * deviation + 1


@pytest.mark.asyncio(loop_scope="session")
async def test_greedy_decoding_is_not_changed(vllm: VllmServer) -> None:
    plain, typical = await vllm.ask(STORY), await vllm.ask(STORY, typical_p=0.1)
    assert plain["generated_text"] == typical["generated_text"]


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("size", [1, 2])
async def test_no_repeats_beside_others(vllm: VllmServer, size: int) -> None:
    model = reference_model(HELLO)
    prompt = torch.tensor([vllm.encode(STORY)])
    mask = torch.ones_like(prompt)
    expected = model.generate(prompt, attention_mask=mask, max_new_tokens=60, no_repeat_ngram_size=size)
    stream, answer = await vllm.beside_a_stream(vllm.ask(STORY, max_new_tokens=60, no_repeat_ngram_size=size))
    assert ids(answer["details"]["tokens"]) == expected[0, prompt.shape[1] :].tolist()
    assert [line["token"]["id"] for line in stream] != ids(answer["details"]["tokens"])[:30]
