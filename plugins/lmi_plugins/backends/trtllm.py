"""The trtllm backend, with TensorRT-LLM's requests and parameters on the torch engine."""

from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing

import msgspec

from lmi_core.backend import Backend, BackendSetup
from lmi_core.configuration.location import RemoteModel
from lmi_core.configuration.properties import ModelProperties
from lmi_core.generation.merge import merge_sequences
from lmi_core.generation.output import GenerationStep
from lmi_core.generation.request import ValidRequest
from lmi_core.generation.tensors import Tensor, TensorBackend
from lmi_core.texts.token_writer import TokenWriter
from lmi_core.workers.placement import Placement
from lmi_core.workers.replicas import ReplicaCount
from lmi_plugins.backends.engine_properties import EmbeddingProperties, engine_downloads
from lmi_plugins.backends.torch import (
    engine_options,
    inspect_torch_model,
    place_on_cluster,
    torch_placement,
    with_tokenizer,
)
from lmi_plugins.backends.trtllm_properties import TrtllmProperties
from lmi_plugins.torch_engine.messages.requests import EngineOptions
from lmi_plugins.trtllm.client import ManagerClient
from lmi_plugins.trtllm.parameters import TrtllmParameters
from lmi_plugins.trtllm.requests.tensor_table import INPUTS, OUTPUTS
from lmi_plugins.trtllm.requests.triton_inputs import from_triton
from lmi_plugins.trtllm.texts.request import request_tensors
from lmi_plugins.trtllm.texts.steps import generation_steps


class TrtllmBackend(Backend[TrtllmProperties], TensorBackend):
    """A GptManager in a worker process; requests for text reach it as tensors too."""

    name = "trtllm"
    aliases = ("trt-llm", "tensorrt-llm", "tensorrt_llm", "tensorrtllm")
    properties_type = TrtllmProperties
    parameters_type = TrtllmParameters
    tensor_inputs = INPUTS
    tensor_outputs = OUTPUTS
    replicates = runs_on_ray = True

    def __init__(self, setup: BackendSetup[TrtllmProperties]) -> None:
        super().__init__(setup)
        self.warnings = [*setup.properties.warnings, *_of_embeddings(setup.properties)]
        self.substitutions = setup.properties.substitutions
        self.options = _options(setup)
        limits = setup.properties.limits
        self.max_input_length, self.max_output_length = limits.max_input_length, limits.max_output_len
        self.manager = ManagerClient(
            self.options,
            limits,
            setup.retry_threshold,
            setup.properties.heartbeat_timeout,
            setup.loading_timeout,
            resume=setup.properties.resume,
            placement=self.placement(setup.replicas),
            max_idle_time=setup.max_idle_time,
        )
        self.replicas = self.manager.replicas
        # The manager's ids of text requests, by the client's API key and request id.
        self._running: dict[tuple[str | None, str], set[int]] = {}

    @classmethod
    def downloads(cls, setup: BackendSetup[TrtllmProperties]) -> Mapping[str, RemoteModel]:
        return engine_downloads(setup)

    @classmethod
    def inspect(cls, setup: BackendSetup[TrtllmProperties]) -> Iterator[str]:
        yield from inspect_torch_model(_options(setup))

    async def start(self) -> None:
        await place_on_cluster(self, self.manager)
        try:
            self.tokenizer = await with_tokenizer(self.options, self.manager.replicas.start())
        except BaseException:
            await self.stop()
            raise
        self.max_length = self.manager.loaded.max_length
        self._writer = TokenWriter(self.tokenizer, frozenset(self.manager.loaded.eos_token_ids))

    async def stop(self) -> None:
        await self.manager.replicas.stop()

    async def health(self) -> None:
        self.manager.replicas.check_health()

    def placement(self, of_group: ReplicaCount) -> Placement:
        return torch_placement(self.setup, of_group)

    async def infer(self, request_id: int, inputs: Mapping[str, Tensor]) -> AsyncGenerator[Mapping[str, Tensor], None]:
        async with aclosing(self.manager.infer(self.manager.new_id(), from_triton(inputs))) as responses:
            async for response in responses:
                yield response

    async def generate(self, request: ValidRequest) -> AsyncGenerator[GenerationStep, None]:
        assert isinstance(request.parameters, TrtllmParameters), request.parameters
        if request.parameters.stop:
            self._stop(request)
            for index in range(request.parameters.num_sequences):
                yield GenerationStep([], "abort", index)
            return
        streams = [self._generate(request, index) for index in range(request.parameters.num_runs)]
        async with aclosing(streams[0] if len(streams) == 1 else merge_sequences(streams)) as steps:
            async for step in steps:
                yield step

    async def _generate(self, request: ValidRequest, index: int) -> AsyncGenerator[GenerationStep, None]:
        """Yield the steps of one of the request's sequences, or of its beams."""
        parameters = request.parameters
        assert isinstance(parameters, TrtllmParameters), parameters
        eos_token_ids, own_id = self.manager.loaded.eos_token_ids, self.manager.new_id()
        running = self._running.setdefault((request.key, request.request_id), set())
        running.add(own_id)
        responses = self.manager.infer(
            own_id,
            request_tensors(request, eos_token_ids, index),
            parameters.bad_sequences or (),
            logit_bias={int(token_id): bias for token_id, bias in (parameters.logit_bias or {}).items()},
            num_top_tokens=parameters.num_top_tokens,
        )
        try:
            async with aclosing(generation_steps(responses, request, self._writer, eos_token_ids, index)) as steps:
                async for step in steps:
                    yield step
        finally:
            running.discard(own_id)
            if not running:
                self._running.pop((request.key, request.request_id), None)

    def _stop(self, request: ValidRequest) -> None:
        for own_id in self._running.get((request.key, request.request_id), ()):
            self.manager.stop_request(own_id)


def _of_embeddings(properties: TrtllmProperties) -> list[str]:
    """Return a warning for each given option of models that embed."""
    own = EmbeddingProperties.model_fields.keys() - ModelProperties.model_fields.keys()
    return [
        f"option.{name}={getattr(properties, name)} has no effect: the trtllm backend makes no embeddings"
        for name in sorted(own & properties.model_fields_set)
    ]


def _options(setup: BackendSetup[TrtllmProperties]) -> EngineOptions:
    properties = setup.properties
    options = engine_options(setup.directory, properties)
    return msgspec.structs.replace(
        options,
        max_batch_size=properties.max_num_sequences or options.max_batch_size,
        max_prefill_tokens=min(properties.max_num_tokens, options.max_prefill_tokens),
        kv_cache_share=properties.kv_cache_free_gpu_mem_fraction,
        adapters={},  # tensors select adapters by `lora_task_id`
    )
