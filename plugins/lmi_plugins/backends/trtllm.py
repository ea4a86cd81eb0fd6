"""The trtllm backend, with TensorRT-LLM's requests and parameters on the torch engine."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any

import msgspec

from lmi_core.backend import BackendSetup
from lmi_core.generation.output import GenerationStep
from lmi_core.generation.parameters import ExtendedParameters
from lmi_core.generation.request import ValidRequest
from lmi_core.generation.tensors import LastResponse, Tensor, TensorBackend
from lmi_core.host.off_loop import run_off_loop
from lmi_plugins.backends.torch import TorchBackend, TorchProperties
from lmi_plugins.backends.trtllm_properties import TrtllmProperties
from lmi_plugins.torch_engine.messages.requests import (
    EngineOptions,
    EngineRequest,
    SamplingParameters,
    sampling_parameters,
)
from lmi_plugins.trtllm.client import TensorClient
from lmi_plugins.trtllm.parameters import TrtllmParameters
from lmi_plugins.trtllm.requests.adapters import PREFIX, RequestAdapter
from lmi_plugins.trtllm.requests.inference_request import InferenceRequest
from lmi_plugins.trtllm.requests.model_checks import check_model
from lmi_plugins.trtllm.requests.tensor_table import INPUTS, OUTPUTS
from lmi_plugins.trtllm.requests.translation import engine_request
from lmi_plugins.trtllm.requests.triton_inputs import from_triton
from lmi_plugins.trtllm.responses import Answer


class TrtllmBackend(TorchBackend, TensorBackend):
    """The torch backend, which takes tensors and TensorRT-LLM's parameters."""

    name = "trtllm"
    aliases = ("trt-llm", "tensorrt-llm", "tensorrt_llm", "tensorrtllm")
    auto_priority = None
    properties_type = TrtllmProperties
    parameters_type = TrtllmParameters
    tensor_inputs = INPUTS
    tensor_outputs = OUTPUTS
    client_type = TensorClient
    engine: TensorClient

    def __init__(self, setup: BackendSetup[TorchProperties]) -> None:
        super().__init__(setup)
        assert isinstance(setup.properties, TrtllmProperties), setup.properties
        self.limits = setup.properties.limits
        self.max_input_length, self.max_output_length = self.limits.max_input_length, self.limits.max_output_len
        self._running: dict[tuple[str | None, str], set[StoppableSteps]] = {}  # by the client's API key and id

    @classmethod
    def engine_options(cls, setup: BackendSetup[Any]) -> EngineOptions:
        properties: TrtllmProperties = setup.properties
        options = super().engine_options(setup)
        return msgspec.structs.replace(
            options,
            max_batch_size=properties.max_num_sequences or options.max_batch_size,
            max_prefill_tokens=min(properties.max_num_tokens, options.max_prefill_tokens),
            kv_cache_share=properties.kv_cache_free_gpu_mem_fraction,
        )

    @property
    def adapters(self) -> list[str]:
        """The adapters that text requests can name, which excludes adapters given as tensors."""
        return [name for name in self.engine.adapters if not name.startswith(PREFIX)]

    async def infer(self, request_id: int, inputs: Mapping[str, Tensor]) -> AsyncGenerator[Mapping[str, Tensor], None]:
        size = sum(len(tensor.data) for tensor in inputs.values())
        asked, adapter, answer = await run_off_loop(size, partial(self._read, request_id, inputs))
        async with aclosing(self.engine.infer(asked, adapter)) as steps:
            async for step in steps:
                for response in answer.add(step):
                    tensors = {name: Tensor.from_array(array) for name, array in response.tensors.items()}
                    yield LastResponse(tensors) if response.is_final else tensors

    def _read(
        self, request_id: int, inputs: Mapping[str, Tensor]
    ) -> tuple[EngineRequest, RequestAdapter | None, Answer]:
        """Return the engine's request, its adapter, and its answer. Raise InvalidParameter if it is invalid."""
        request = InferenceRequest(request_id, from_triton(inputs))
        self.limits.check(request)
        check_model(request, self.engine.vocabulary, self.engine.max_length)
        asked, adapter = engine_request(request, None), RequestAdapter.of(request)
        return asked, adapter, Answer(request, self.engine.vocabulary)

    async def generate(self, request: ValidRequest) -> AsyncGenerator[GenerationStep, None]:
        parameters, running = request.parameters, self._running.setdefault((request.key, request.request_id), set())
        assert isinstance(parameters, TrtllmParameters), parameters
        self.limits.check_beams("num_beams", parameters.num_beams)
        stoppable = StoppableSteps(parameters.num_sequences)
        if parameters.stop:
            for each in (*running, stoppable):
                each.stop()
        running.add(stoppable)
        try:
            steps = self.engine.generate(request.prompt_ids, _sampling_parameters(request), request.adapter)
            async with aclosing(stoppable.read(steps)) as read:
                async for step in read:
                    yield step
        finally:
            running.discard(stoppable)
            if not running:
                self._running.pop((request.key, request.request_id), None)


class StoppableSteps:
    """The steps of a request, which another request may end."""

    def __init__(self, num_sequences: int) -> None:
        self._unfinished = dict.fromkeys(range(num_sequences))
        self._stopped = False
        self._wait: asyncio.Timeout | None = None  # for the next step

    def stop(self) -> None:
        if self._wait is not None and not self._stopped:
            self._wait.reschedule(0)
        self._stopped = True

    async def read(self, steps: AsyncGenerator[GenerationStep, None]) -> AsyncGenerator[GenerationStep, None]:
        """Yield the steps; once stopped, end the unfinished sequences instead."""
        async with aclosing(steps):
            while self._unfinished and not self._stopped:
                try:
                    async with asyncio.timeout(None) as self._wait:
                        step = await anext(steps)
                except TimeoutError:
                    break
                finally:
                    self._wait = None
                if step.finish_reason is not None:
                    self._unfinished.pop(step.sequence_index, None)
                yield step
        for index in self._unfinished:
            yield GenerationStep([], "abort", index)


def _sampling_parameters(request: ValidRequest) -> SamplingParameters:
    """Return the engine's parameters; TensorRT-LLM's penalties count the prompt too."""
    parameters = request.parameters
    assert isinstance(parameters, TrtllmParameters), parameters
    given = parameters.model_dump() | {"do_sample": parameters.samples, "top_p": parameters.top_p or 1.0}
    extended = ExtendedParameters.model_construct(**given)
    return msgspec.structs.replace(
        sampling_parameters(extended, request.markers, ranks=request.ranks), penalize_prompt=True
    )
