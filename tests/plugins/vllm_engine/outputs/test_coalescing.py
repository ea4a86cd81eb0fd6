"""Tokens that gather in vLLM's own collector while many requests run."""

import asyncio
import time
from typing import Any, cast

import pytest
from vllm.config import ObservabilityConfig
from vllm.v1.engine import EngineCoreOutput, EngineCoreRequest, FinishReason
from vllm.v1.engine.output_processor import OutputProcessor, RequestOutputCollector

from lmi_core.generation import coalescing
from lmi_plugins.vllm_engine.engine import VllmEngine
from lmi_plugins.vllm_engine.library import RequestOutputKind, SamplingParams, token_prompt

PROMPT = [1]


class Vllm:
    """Stands for AsyncLLM, with one request and vLLM's own processing of what its core puts out."""

    errored = False
    observability_config = ObservabilityConfig()

    def __init__(self) -> None:
        self.output_processor = OutputProcessor(None, log_stats=False)
        self.collector = RequestOutputCollector(RequestOutputKind.DELTA, "0")

    async def add_request(
        self, request_id: str, prompt: Any, parameters: SamplingParams, **_: object
    ) -> RequestOutputCollector:
        parameters.detokenize, parameters.output_kind = False, RequestOutputKind.DELTA
        request = EngineCoreRequest("0", PROMPT, None, parameters, None, time.time(), None, None, None)
        request.external_req_id = "0"
        self.output_processor.add_request(request, None, queue=self.collector)
        return self.collector

    def put_out(self, token_id: int, *, last: bool = False) -> None:
        ended = FinishReason.LENGTH if last else None
        self.output_processor.process_outputs([EngineCoreOutput("0", [token_id], finish_reason=ended)])


@pytest.mark.parametrize("coalesces", [False, True])
async def test_the_first_and_the_last_token_wait_for_nothing(monkeypatch: pytest.MonkeyPatch, coalesces: bool) -> None:
    monkeypatch.setattr(coalescing, "MAX_UNDELAYED_STREAMS", 0)
    vllm, engine, read = Vllm(), VllmEngine({}, 3, max_stream_delay=1000), list[list[int]]()
    monkeypatch.setattr(coalescing, "SECONDS_PER_STREAM", 1000)
    engine._supervisor._running = cast("Any", vllm)

    async def reading() -> None:
        async for output in engine.generate(token_prompt(PROMPT), SamplingParams(), coalesces=coalesces):
            read.append(list(output.outputs[0].token_ids))

    task = asyncio.create_task(reading())
    await asyncio.sleep(0)
    for token_id in range(4):
        vllm.put_out(token_id, last=token_id == 3)
        for _ in range(5):  # passes of the event loop, in which it is read
            await asyncio.sleep(0)
    assert task.done()
    await task
    assert read == ([[0], [1, 2, 3]] if coalesces else [[0], [1], [2], [3]])
