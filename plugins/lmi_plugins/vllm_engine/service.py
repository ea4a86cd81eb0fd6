"""The vLLM backend's work once vLLM is imported: it turns valid requests into generation steps."""

import logging
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

from prometheus_client import Metric

from lmi_core.embedding_backend import EmbeddingModel, Vector
from lmi_core.errors import GenerationFailed
from lmi_core.generation.embedding_request import ValidEmbedding
from lmi_core.generation.images import Image, ImagePrompt
from lmi_core.generation.merge import merge_sequences
from lmi_core.generation.output import GenerationStep
from lmi_core.generation.parameters import ExtendedParameters
from lmi_core.generation.request import ValidRequest
from lmi_core.metrics.engine_figures import EngineFigures
from lmi_core.texts.huggingface_tokenizer import HuggingFaceTokenizer
from lmi_core.texts.token_writer import TokenWriter
from lmi_core.workers.isolation import Presence
from lmi_core.workers.partial_output import Given, PartialOutput
from lmi_plugins.torch_engine.messages.guide_limits import GuideLimits
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
from lmi_plugins.vllm_engine.loading import embeds
from lmi_plugins.vllm_engine.outputs.beam_search import BeamSearch
from lmi_plugins.vllm_engine.outputs.generation import NOTHING, steps
from lmi_plugins.vllm_engine.requests.guides import GuideTrials, guide_of
from lmi_plugins.vllm_engine.requests.images import VllmImages, place_images
from lmi_plugins.vllm_engine.requests.parameter_checks import (
    check_beams,
    check_passed_fields,
    check_reasoning_budget,
    check_speculation,
)
from lmi_plugins.vllm_engine.requests.resuming import CANNOT, goes_on, repeats, rest, shorten
from lmi_plugins.vllm_engine.requests.sampling import sampling_params, structured_outputs
from lmi_plugins.vllm_engine.requests.vllm_fields import fields_of, read_fields

logger = logging.getLogger(__name__)


class AcceptanceLog:
    """The log of one engine, for `option.record_acceptance_rate`."""

    def __init__(self) -> None:
        self._drafted = 0
        self._accepted = 0

    async def recorded(
        self, request_id: str, outputs: AsyncGenerator[RequestOutput, None]
    ) -> AsyncGenerator[RequestOutput, None]:
        """Yield the outputs unchanged, and log the counts of the last one. Closing the generator closes them."""
        async with aclosing(outputs):
            async for output in outputs:
                metrics = output.outputs[0].spec_decode_metrics  # there once the request is finished
                if metrics is not None:
                    accepted = sum(count * steps for count, steps in enumerate(metrics.histogram))
                    self._record(request_id, accepted, metrics.num_draft_tokens)
                yield output

    def _record(self, request_id: str, accepted: int, drafted: int) -> None:
        self._accepted += accepted
        self._drafted += drafted
        if drafted:
            logger.info(
                "Request %s: %d of %d draft tokens accepted (%.0f%%); of all requests so far %.0f%%",
                request_id,
                accepted,
                drafted,
                100 * accepted / drafted,
                100 * self._accepted / self._drafted,
            )


class VllmService:
    """An engine, its adapters, and the writer of its tokens."""

    def __init__(
        self,
        arguments: Mapping[str, str],
        tokenizer: HuggingFaceTokenizer,
        retry_threshold: int,
        max_stream_delay: float,
        heartbeat_timeout: float,
        loading_timeout: float,
        guide_limits: GuideLimits,
        *,
        resume: bool = False,
        allow_pickle: bool = False,
    ) -> None:
        self._engine = VllmEngine(
            arguments, retry_threshold, max_stream_delay, heartbeat_timeout, loading_timeout, resume=resume
        )
        self._adapters = VllmAdapters(self._engine, allow_pickle=allow_pickle)
        self._tokenizer = tokenizer
        self._trials = GuideTrials(tokenizer, guide_limits)
        self.embedding: EmbeddingModel | None = None  # None: the model generates
        self._speculates = "speculative_config" in arguments
        self._acceptance = AcceptanceLog() if "per_request_spec_decode_metrics" in arguments else None

    async def start(self, adapters: Mapping[str, Path]) -> int:
        """Start the engine, and return the maximum length of a sequence. Raise ConfigurationError if that fails."""
        await self._engine.start()
        if embeds(self._engine.vllm):
            self.embedding = embedding_model(self._engine.vllm.model_config)
        own_end = self._tokenizer.pretrained.eos_token_id  # which ends a generation in vLLM too
        self._eos_token_ids = self._engine.eos_token_ids() | frozenset([own_end] if own_end is not None else ())
        self._writer = TokenWriter(self._tokenizer, self._eos_token_ids)
        self.images = VllmImages(self._engine.vllm)
        await self._adapters.load_all(adapters)
        return self._engine.max_length

    async def stop(self) -> None:
        """End the engine."""
        await self._engine.stop()
        await self._trials.stop()

    def check_health(self) -> None:
        """Raise BackendUnhealthy unless the engine accepts requests."""
        _ = self._engine.vllm

    async def given_up(self) -> str:
        """Wait until the engine is not started again, and return why."""
        await self._engine.restarts.given_up.wait()
        return self._engine.restarts.reason

    @property
    def adapters(self) -> Collection[str]:
        """Names of the adapters that requests may use."""
        return self._adapters.names

    async def load_adapter(self, name: str, directory: Path) -> None:
        """Load an adapter, replacing one of the same name. Raise InvalidAdapter if it does not fit."""
        await self._adapters.load(name, directory)

    async def pin_adapter(self, name: str, pinned: bool) -> None:
        """Pin an adapter to a slot of the engine, or unpin it. Raises the errors of VllmAdapters.pin."""
        await self._adapters.pin(name, pinned)

    def unload_adapter(self, name: str) -> None:
        """Unload an adapter. Raise AdapterNotFound if there is none."""
        self._adapters.unload(name)

    async def place_images(
        self, prompt_ids: list[int], images: Sequence[Image], parameters: Mapping[str, Any]
    ) -> ImagePrompt:
        """Put images into their places in a prompt. Raise InvalidParameter or BackendUnhealthy."""
        return await place_images(self._engine.vllm, prompt_ids, images, read_fields(parameters))

    def generate(self, request: ValidRequest) -> AsyncGenerator[GenerationStep, None]:
        """Return the steps of a request. Raise InvalidParameter where vLLM refuses one."""
        parameters = request.parameters
        assert isinstance(parameters, ExtendedParameters), parameters
        if self._speculates:
            check_speculation(parameters)
        check_reasoning_budget(parameters, self._engine.vllm.model_config.get_vocab_size())
        if parameters.wants_prefill:
            self._adapters.check_prompt_log_probs()
        check_passed_fields(parameters)
        adapter = self._adapters.find(request.adapter)  # another of its name may take its place meanwhile
        first = [self._begin(request, parameters, adapter)]  # raises what vLLM refuses
        partial = PartialOutput(parameters.num_sequences)

        def begin(_: Presence) -> AsyncGenerator[GenerationStep, None]:
            return first.pop() if first else self._begin_again(request, parameters, adapter, partial.given)

        steps = self._engine.resumption.stream(begin, partial.add)
        guide = guide_of(structured_outputs(parameters))
        return steps if guide is None else self._guided(guide, steps)

    async def _guided(
        self, guide: Guide, steps: AsyncGenerator[GenerationStep, None]
    ) -> AsyncGenerator[GenerationStep, None]:
        """Yield the steps of a request after a trial of its guide. Raises the errors of GuideTrials.check."""
        async with aclosing(steps):
            vllm = self._engine.vllm
            await self._trials.check(guide, vllm.model_config.get_vocab_size(), guide_library(vllm))
            async for step in steps:
                yield step

    def _begin(
        self, request: ValidRequest, parameters: ExtendedParameters, adapter: Adapter | None
    ) -> AsyncGenerator[GenerationStep, None]:
        if parameters.num_beams > 1:
            return self._search(request, parameters, adapter)
        return _together([self._sequence(request, parameters, adapter, i) for i in range(parameters.num_sequences)])

    def _begin_again(
        self, request: ValidRequest, parameters: ExtendedParameters, adapter: Adapter | None, given: list[Given]
    ) -> AsyncGenerator[GenerationStep, None]:
        """Return the steps after those already given. Raise GenerationFailed if the request cannot continue."""
        if not given:
            return self._begin(request, parameters, adapter)
        if goes_on(parameters):
            unfinished = [(i, each) for i, each in enumerate(given) if not each.finished]
            return _together([self._sequence(request, parameters, adapter, i, each) for i, each in unfinished])
        if repeats(parameters):
            return rest(self._begin(request, parameters, adapter), given)
        raise GenerationFailed(CANNOT)

    def figures(self) -> EngineFigures:
        return self._engine.figures

    def process_ids(self) -> Collection[int]:
        return self._engine.process_ids()

    def metrics(self) -> Iterable[Metric]:
        return self._engine.metrics()

    def embed(self, requests: Sequence[ValidEmbedding]) -> AsyncGenerator[Vector, None]:
        """Return the vectors of the requests as they are made. Raise InvalidParameter where vLLM refuses one."""
        return vectors(requests, self._engine, self._adapters)

    def _search(
        self, request: ValidRequest, parameters: ExtendedParameters, adapter: Adapter | None
    ) -> AsyncGenerator[GenerationStep, None]:
        check_beams(parameters)
        priority = fields_of(parameters).priority

        async def next_token(ids: list[int], asked: SamplingParams) -> RequestOutput:
            outputs = self._engine.generate(_prompt(request, ids), asked, adapter, priority=priority)
            async with aclosing(outputs):
                return await anext(outputs)

        search = BeamSearch(request.prompt_ids, parameters, self._writer, self._eos_token_ids, request.markers)
        return search.steps(next_token)

    def _sequence(
        self,
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
        coalesces = not parameters.stop_sequences  # they are looked for in what was read
        priority = fields_of(parameters).priority
        prompt = _prompt(request, [*request.prompt_ids, *given.token_ids])
        outputs = self._engine.generate(prompt, sampling, adapter, coalesces=coalesces, priority=priority)
        if self._acceptance is not None:
            outputs = self._acceptance.recorded(request.request_id, outputs)
        return steps(outputs, request.prompt_ids, parameters, self._writer, index, request.markers, given)


def _prompt(request: ValidRequest, ids: list[int]) -> TokensInput | MultiModalInput:
    assert isinstance(request.parameters, ExtendedParameters), request.parameters
    salt = request.parameters.cache_salt
    if request.image_prompt is None:
        return token_prompt(ids, salt)
    return image_prompt(request.image_prompt.content, ids, salt)


def _together(sequences: list[AsyncGenerator[GenerationStep, None]]) -> AsyncGenerator[GenerationStep, None]:
    return sequences[0] if len(sequences) == 1 else merge_sequences(sequences)
