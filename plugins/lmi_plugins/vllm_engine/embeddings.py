"""Vectors of vLLM's pooling models, and scores of its classifiers with one label."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path

from lmi_core.embedding_backend import EmbeddingModel, Vector
from lmi_core.errors import GenerationFailed
from lmi_core.generation.embedding_request import ValidEmbedding
from lmi_core.inspection.layers import read_prompts
from lmi_plugins.vllm_engine.adapters.loaded import VllmAdapters
from lmi_plugins.vllm_engine.engine import VllmEngine
from lmi_plugins.vllm_engine.library import ModelConfig, PoolingParams, token_prompt
from lmi_plugins.vllm_engine.loading import EMBED, SCORE

MAX_AT_ONCE = 128  # inputs of one request in the engine; more would delay other requests


def embedding_model(config: ModelConfig, task: str) -> EmbeddingModel:
    """Return the properties of a model's vectors or scores from vLLM's configuration."""
    if task == SCORE:
        return EmbeddingModel(1, int(config.max_model_len), scores=True, joins_pairs=not config.use_sep_token)
    sizes: tuple[int, ...] | None = ()
    if config.is_matryoshka:
        sizes = tuple(config.matryoshka_dimensions) if config.matryoshka_dimensions else None
    lower_case = bool((config.encoder_config or {}).get("do_lower_case"))
    length, prompts = int(config.max_model_len), read_prompts(Path(config.model))
    return EmbeddingModel(int(config.embedding_size), length, sizes, lower_case, prompts=prompts)


async def vectors(
    requests: Mapping[int, ValidEmbedding], engine: VllmEngine, adapters: VllmAdapters, *, scores: bool
) -> AsyncGenerator[Vector, None]:
    """Yield the vectors, by index, as they arrive; each is a separate request to vLLM.

    Closing the generator aborts the others. Raise LmiError if the engine fails.
    """
    places = asyncio.Semaphore(MAX_AT_ONCE)
    tasks = [
        asyncio.create_task(_vector(index, request, engine, adapters, places, scores=scores))
        for index, request in requests.items()
    ]
    try:
        for done in asyncio.as_completed(tasks):
            yield await done
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _vector(
    index: int,
    request: ValidEmbedding,
    engine: VllmEngine,
    adapters: VllmAdapters,
    places: asyncio.Semaphore,
    *,
    scores: bool,
) -> Vector:
    async with places:
        parameters = PoolingParams(
            task=SCORE if scores else EMBED, dimensions=request.dimensions, use_activation=request.normalize
        )
        if request.token_types is not None:  # vLLM expects the start of the second text
            parameters.extra_kwargs = {"compressed_token_type_ids": [*request.token_types, 1].index(1)}
        prompt = token_prompt(request.prompt_ids, request.cache_salt)
        output = await engine.embed(prompt, parameters, adapters.find(request.adapter))
    numbers = output.outputs.data.float()
    if not numbers.isfinite().all():
        raise GenerationFailed("the model's output for one of the inputs is not a number")
    return index, numbers.numpy().astype("<f4").tobytes()
