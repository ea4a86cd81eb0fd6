"""The part of the vLLM backend that imports vLLM: it turns valid requests into generation steps."""

import logging
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any

from prometheus_client import Metric

from lmi_core.backend import BackendSetup
from lmi_core.embedding_backend import EmbeddingModel, Vector
from lmi_core.errors import GenerationFailed
from lmi_core.generation.embedding_request import ValidEmbedding
from lmi_core.generation.images import Image, ImagePrompt
from lmi_core.generation.merge import merge
from lmi_core.generation.output import GenerationStep, Given, PartialOutput
from lmi_core.generation.parameters import ExtendedParameters
from lmi_core.generation.request import ValidRequest
from lmi_core.host.devices import CPU
from lmi_core.logs.loading_progress import Report, unheard
from lmi_core.texts.huggingface_tokenizer import HuggingFaceTokenizer
from lmi_core.texts.token_writer import TokenWriter
from lmi_core.workers.isolation import Presence, Work
from lmi_core.workers.placement import ANYWHERE, Placement
from lmi_core.workers.replicas import Replicas
from lmi_core.workers.resumption import Resumption
from lmi_core.workers.shared_worker import number_of_servers
from lmi_plugins.torch_engine.messages.requests import Guide
from lmi_plugins.vllm_engine.adapters.adapter import Adapter
from lmi_plugins.vllm_engine.adapters.loaded import VllmAdapters
from lmi_plugins.vllm_engine.embeddings import embedding_model, vectors
from lmi_plugins.vllm_engine.engine import VllmEngine, translated_errors
from lmi_plugins.vllm_engine.library import (
    MultiModalInput,
    RequestOutput,
    SamplingParams,
    TokensInput,
    guide_library,
    image_prompt,
    token_prompt,
)
from lmi_plugins.vllm_engine.loading import embeds, pooling_task
from lmi_plugins.vllm_engine.outputs.beam_search import BeamSearch
from lmi_plugins.vllm_engine.outputs.generation import NOTHING, steps
from lmi_plugins.vllm_engine.remote.remote_core import RemoteCore
from lmi_plugins.vllm_engine.requests.guides import GuideTrials
from lmi_plugins.vllm_engine.requests.images import VllmImages, place_images
from lmi_plugins.vllm_engine.requests.parameter_checks import (
    check_beams,
    check_passed_fields,
    check_reasoning_budget,
    check_speculation,
)
from lmi_plugins.vllm_engine.requests.resuming import CANNOT, goes_on, repeats, rest, shorten
from lmi_plugins.vllm_engine.requests.sampling import sampling_params, vllm_guide
from lmi_plugins.vllm_engine.requests.vllm_fields import VllmFields, fields_of

logger = logging.getLogger(__name__)


class AcceptanceLog:
    """The log of one engine, for `option.record_acceptance_rate`."""

    def __init__(self) -> None:
        self._drafted = 0
        self._accepted = 0

    async def record(
        self, request_id: str, outputs: AsyncGenerator[RequestOutput, None]
    ) -> AsyncGenerator[RequestOutput, None]:
        """Yield the outputs unchanged, and log the counts of the last one. Closing the generator closes them."""
        async with aclosing(outputs):
            async for output in outputs:
                metrics = output.outputs[0].spec_decode_metrics  # set once the request is finished
                if metrics is not None:
                    accepted = sum(count * steps for count, steps in enumerate(metrics.histogram))
                    self._accepted += accepted
                    self._drafted += metrics.num_draft_tokens
                    if metrics.num_draft_tokens:
                        logger.info(
                            "Request %s: %d of %d draft tokens accepted (%.0f%%); of all requests so far %.0f%%",
                            request_id,
                            accepted,
                            metrics.num_draft_tokens,
                            100 * accepted / metrics.num_draft_tokens,
                            100 * self._accepted / self._drafted,
                        )
                yield output


class VllmService:
    """Engines with one model, their adapters, and the writer of their tokens."""

    def __init__(
        self,
        arguments: Mapping[str, str],
        tokenizer: HuggingFaceTokenizer,
        setup: BackendSetup[Any],
        placement: Placement = ANYWHERE,
    ) -> None:
        """Create a service without starting it; `setup` has the properties of the vLLM backend."""
        properties = setup.properties

        self.report: Report = unheard  # receives the progress of copying files to other machines

        def create(number: int) -> VllmEngine:
            devices = [int(device) for device in placement.devices(number) if device != CPU]
            cluster, share = placement.ray_address, 1 / (placement.replicas.minimum * number_of_servers())
            engine = VllmEngine(
                arguments,
                setup.retry_threshold,
                properties.max_stream_delay / 1000,
                properties.heartbeat_timeout,
                setup.loading_timeout,
                devices,
                None if cluster is None else partial(RemoteCore, cluster, len(devices), share),
            )
            engine.report = unheard if self.replicas.members else self.report
            return engine

        count, groups = placement.replicas, len(placement.groups)
        self.replicas = Replicas(create, count, properties.max_rolling_batch_size, setup.max_idle_time, groups=groups)
        self._resumption = Resumption(self.replicas, enabled=properties.resume)
        self.adapters = VllmAdapters(self.replicas, allow_pickle=properties.allow_pickle)
        self._tokenizer = tokenizer
        self._max_image_pixels = properties.max_image_pixels
        self._trials = GuideTrials(tokenizer, properties.guide_limits)
        self.embedding: EmbeddingModel | None = None  # None: the model generates text
        self._speculates = "speculative_config" in arguments
        self._acceptance = AcceptanceLog() if "per_request_spec_decode_metrics" in arguments else None

    async def start(self, adapters: Mapping[str, Path], former: Replicas[Any] | None = None) -> int:
        """Start the engines, and return the maximum length of a sequence. Raise ConfigurationError if that fails.

        For `former` see Replicas.
        """
        await self.replicas.start(former)
        if embeds(self._engine.vllm):
            self.embedding = embedding_model(self._engine.vllm.model_config, await pooling_task(self._engine.vllm))
        own_end = self._tokenizer.pretrained.eos_token_id  # also ends a generation in vLLM
        self._eos_token_ids = self._engine.eos_token_ids() | frozenset([own_end] if own_end is not None else ())
        self._writer = TokenWriter(self._tokenizer, self._eos_token_ids)
        self.images = VllmImages(self._engine.vllm)
        await self.adapters.load_all(adapters)
        return self._engine.max_length

    async def stop(self) -> None:
        """End the engines."""
        await self.replicas.stop()
        await self._trials.stop()

    @property
    def _engine(self) -> VllmEngine:
        """An engine that describes the model, which is the same in all of them."""
        return self.replicas.first

    async def place_images(self, prompt_ids: list[int], images: Sequence[Image], fields: VllmFields) -> ImagePrompt:
        """Put images into their places in a prompt. Raise InvalidParameter or BackendUnhealthy."""
        return await place_images(self._engine.vllm, prompt_ids, images, fields, self._max_image_pixels)

    def generate(self, request: ValidRequest) -> AsyncGenerator[GenerationStep, None]:
        """Return the steps of a request. Raise InvalidParameter if vLLM refuses one."""
        parameters = request.parameters
        assert isinstance(parameters, ExtendedParameters), parameters
        if self._speculates:
            check_speculation(parameters)
        check_reasoning_budget(parameters, self._engine.vllm.model_config.get_vocab_size())
        if parameters.wants_prefill:
            self.adapters.check_prompt_log_probs()
        check_passed_fields(parameters)
        adapter = self.adapters.find(request.adapter)  # another of its name may take its place meanwhile
        partial = PartialOutput(parameters.num_sequences)

        def begin(engine: VllmEngine, _: Presence) -> AsyncGenerator[GenerationStep, None]:
            return self._begin(engine, request, parameters, adapter, partial.given)

        kind = (request.adapter, parameters.cache_salt)
        work = Work.generation(request.prompt_ids, parameters.max_new_tokens, parameters.num_sequences, kind)
        steps = self._resumption.stream(begin, partial.add, work)
        guide = vllm_guide(parameters)
        return steps if guide is None else self._check_guide(guide, steps)

    async def _check_guide(
        self, guide: Guide, steps: AsyncGenerator[GenerationStep, None]
    ) -> AsyncGenerator[GenerationStep, None]:
        """Yield the steps of a request after a trial of its guide. Raises the errors of GuideTrials.check."""
        async with aclosing(steps):
            vllm = self._engine.vllm
            await self._trials.check(guide, vllm.model_config.get_vocab_size(), guide_library(vllm))
            async for step in steps:
                yield step

    def _begin(
        self,
        engine: VllmEngine,
        request: ValidRequest,
        parameters: ExtendedParameters,
        adapter: Adapter | None,
        given: list[Given],
    ) -> AsyncGenerator[GenerationStep, None]:
        """Return the steps after those already given. Raise GenerationFailed if the request cannot continue."""
        if given and goes_on(parameters):
            unfinished = [(i, each) for i, each in enumerate(given) if not each.finished]
            return merge([self._sequence(engine, request, parameters, adapter, i, each) for i, each in unfinished])
        if given and not repeats(parameters):
            raise GenerationFailed(CANNOT)
        if parameters.num_beams > 1:
            steps = self._search(engine, request, parameters, adapter)
        else:
            sequences = range(parameters.num_sequences)
            steps = merge([self._sequence(engine, request, parameters, adapter, i) for i in sequences])
        return rest(steps, given) if given else steps

    def metrics(self) -> Iterator[Metric]:
        """Yield the families of vLLM's own metrics, if enabled.

        If there are several engines, a label gives each one's number.
        """
        for engine in self.replicas.members:
            for family in engine.metrics():
                if number := self.replicas.number(engine):
                    own = {"engine": str(number)}
                    family.samples = [each._replace(labels=each.labels | own) for each in family.samples]
                yield family

    def embed(self, requests: Sequence[ValidEmbedding]) -> AsyncGenerator[Vector, None]:
        """Return the vectors of the requests as they are computed. Raise InvalidParameter if vLLM refuses one."""
        missing = dict(enumerate(requests))

        def note(vector: Vector) -> int:
            del missing[vector[0]]
            return len(requests) - len(missing)

        work = Work(rest=sum(len(each.prompt_ids) for each in requests))
        scores = self.embedding is not None and self.embedding.scores
        return self._resumption.stream(
            lambda engine, _: vectors(missing.copy(), engine, self.adapters, scores=scores), note, work
        )

    def _search(
        self, engine: VllmEngine, request: ValidRequest, parameters: ExtendedParameters, adapter: Adapter | None
    ) -> AsyncGenerator[GenerationStep, None]:
        check_beams(parameters)
        priority = fields_of(parameters).priority

        async def next_token(ids: list[int], asked: SamplingParams) -> RequestOutput:
            outputs = engine.generate(_prompt(request, ids), asked, adapter, priority=priority)
            async with aclosing(outputs):
                return await anext(outputs)

        search = BeamSearch(request.prompt_ids, parameters, self._writer, self._eos_token_ids, request.markers)
        return search.steps(next_token)

    def _sequence(
        self,
        engine: VllmEngine,
        request: ValidRequest,
        parameters: ExtendedParameters,
        adapter: Adapter | None,
        index: int,
        given: Given = NOTHING,
    ) -> AsyncGenerator[GenerationStep, None]:
        """Return the steps of one sequence, which is a separate request to vLLM; the shared prompt is cached."""
        with translated_errors():
            sampling = sampling_params(parameters, index, request.log_probs)
        shorten(sampling, given)
        coalesces = not parameters.stop_sequences  # they are searched for in the text that has been read
        priority = fields_of(parameters).priority
        prompt = _prompt(request, [*request.prompt_ids, *given.token_ids])
        outputs = engine.generate(prompt, sampling, adapter, coalesces=coalesces, priority=priority)
        if self._acceptance is not None:
            outputs = self._acceptance.record(request.request_id, outputs)
        return steps(outputs, request.prompt_ids, parameters, self._writer, index, request.markers, given)


def _prompt(request: ValidRequest, ids: list[int]) -> TokensInput | MultiModalInput:
    assert isinstance(request.parameters, ExtendedParameters), request.parameters
    salt = request.parameters.cache_salt
    if request.image_prompt is None:
        return token_prompt(ids, salt)
    return image_prompt(request.image_prompt.content, ids, salt)
