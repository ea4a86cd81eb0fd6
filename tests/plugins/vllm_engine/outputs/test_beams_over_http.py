"""Beam search in vLLM's engine, as a parameter of a served model."""

import asyncio
from typing import Any

import pytest

from lmi_core.generation.parameters import ExtendedParameters
from lmi_plugins.torch_engine.messages.requests import EngineRequest, sampling_parameters
from tests.plugins.torch_engine.beams.test_search import found_ids
from tests.plugins.torch_engine.tiny_models import make_engine, run
from tests.plugins.vllm_server import HELLO, STORY, VllmServer, ids

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]


@pytest.mark.parametrize(
    "given",
    [
        {"num_beams": 2},
        {"num_beams": 4, "length_penalty": 0.0},
        {"num_beams": 4, "length_penalty": 2.0, "early_stopping": True},
        {"num_beams": 5, "min_length": 12},
    ],
)
async def test_finds_what_the_torch_engine_finds(vllm: VllmServer, given: dict[str, Any]) -> None:
    engine = make_engine(HELLO)
    for prompt in ("What is Deep Learning?", STORY):
        parameters = ExtendedParameters(max_new_tokens=24, **given)
        asked = EngineRequest("a", vllm.encode(prompt), sampling_parameters(parameters))
        details = (await vllm.ask(prompt, max_new_tokens=24, **given))["details"]
        found = [details, *details["best_of_sequences"]]
        assert [ids(each["tokens"]) for each in found] == found_ids(run(engine, asked)["a"])


async def test_the_prompt_comes_with_its_log_probs(vllm: VllmServer) -> None:
    beams, plain = [
        (await vllm.ask(STORY, num_beams=num_beams, max_new_tokens=4, decoder_input_details=True))["details"]
        for num_beams in (2, 1)
    ]
    assert [token["log_prob"] for token in beams["prefill"]] == pytest.approx(
        [token["log_prob"] for token in plain["prefill"]], abs=1e-4
    )


async def test_refusals_name_both(vllm: VllmServer) -> None:
    refusal = await vllm.refusal(STORY, num_beams=3, repetition_penalty=1.5)
    assert refusal == "`num_beams` above 1 and `repetition_penalty` cannot be used together with vLLM"


async def test_leaves_nothing_in_the_engine_when_it_is_dropped(vllm: VllmServer) -> None:
    asking = asyncio.create_task(vllm.ask(STORY, num_beams=8, ignore_eos_token=True, max_new_tokens=900))
    while not await vllm.is_working():
        assert not asking.done(), asking.result()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert await vllm.until(working=False) < 30  # steps of the 900 that it would go on for
