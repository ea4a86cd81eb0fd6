"""Loading of an embedding model, of a reranker, or of a generating model that also embeds."""

import logging
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModel,
    AutoModelForSequenceClassification,
    AutoModelForTextEncoding,
    PreTrainedConfig,
    PreTrainedModel,
)

from lmi_core.embedding_backend import EmbeddingModel
from lmi_core.errors import ConfigurationError
from lmi_plugins.torch_engine.checkpoint.weights_check import wrong_weights_of_base, wrong_weights_of_scorer
from lmi_plugins.torch_engine.embeddings.embedder import Embedder, activation
from lmi_plugins.torch_engine.embeddings.engine import EmbeddingEngine
from lmi_plugins.torch_engine.embeddings.hidden_states import HiddenStates, PaddedStates
from lmi_plugins.torch_engine.embeddings.packed_states import PackedStates
from lmi_plugins.torch_engine.embeddings.recipe import Recipe, read_recipe
from lmi_plugins.torch_engine.embeddings.task import (
    check_scorer,
    choose_task,
    default_pooling,
    is_encoder_of_two,
    reads_left_to_right,
)
from lmi_plugins.torch_engine.engine.engine import Engine
from lmi_plugins.torch_engine.messages.embeddings import EmbeddingInput, EmbeddingOptions
from lmi_plugins.torch_engine.messages.requests import EngineOptions
from lmi_plugins.torch_engine.model.loading import context_length, load_weights, read_config
from lmi_plugins.torch_engine.model.rope_by_length import RopeByLength
from lmi_plugins.torch_engine.model.threads import Threads

logger = logging.getLogger(__name__)


class PaddedScores(PaddedStates):
    """The logit of each pair, in the form of the only hidden state of a one-token text."""

    def __init__(self, model: PreTrainedModel, rope: RopeByLength | None = None) -> None:
        super().__init__(model, rope)
        # Causal models find the last token of a text by the padding.
        self.alone = self.alone or model.config.get_text_config().pad_token_id is None

    def states(self, texts: list[EmbeddingInput]) -> torch.Tensor:
        logits: torch.Tensor = self.output(texts).logits
        return logits[:, None]


ACCELERATOR_TOKENS = 8192  # the minimum per step if nothing else runs: fewer do not fill a GPU


def load_embedding_engine(options: EngineOptions) -> EmbeddingEngine:
    """Load an embedding model or a reranker. Raise ConfigurationError if that fails."""
    scores = choose_task(options) == "score"
    model = _load_scorer(options) if scores else _load(options)
    if scores:
        recipe = score_recipe(model.config, options.embedding)
    else:
        recipe = read_recipe(Path(options.model), default_pooling(model.config), options.embedding)
    length = _max_input_length(model, options, recipe)
    max_tokens = options.max_prefill_tokens
    if model.device.type != "cpu":
        max_tokens = max(max_tokens, ACCELERATOR_TOKENS)
    states = (PaddedScores if scores else PaddedStates)(model, RopeByLength.of(model, length))
    return _engine(states, model, recipe, options, length, max_tokens, Threads(model, options.threads))


def embedding_engine_of(generation: Engine, options: EngineOptions) -> EmbeddingEngine | None:
    """Return an embedding engine that uses a generating model, at no cost while idle; None if unsupported."""
    try:
        return _beside_generation(generation, options)
    except ConfigurationError as error:
        logger.warning("The model generates, but makes no embeddings: %s", error.message)
    except Exception as error:
        logger.info("%s makes no embeddings: the attempt failed: %s", type(generation.model).__name__, error)
    return None


def _beside_generation(generation: Engine, options: EngineOptions) -> EmbeddingEngine:
    model = generation.model.base_model
    assert isinstance(model, PreTrainedModel), model
    recipe = read_recipe(Path(options.model), default_pooling(model.config), options.embedding)
    states: HiddenStates = (PackedStates if generation.runner.paged else PaddedStates)(model, generation.runner.rope)
    states.adapters = generation.runner.adapters
    length = min(generation.limits.max_length, recipe.max_length or generation.limits.max_length)
    return _engine(states, model, recipe, options, length, options.max_prefill_tokens, generation.threads)


def _engine(
    states: HiddenStates,
    model: PreTrainedModel,
    recipe: Recipe,
    options: EngineOptions,
    max_length: int,
    max_tokens: int,
    threads: Threads,
) -> EmbeddingEngine:
    embedder = Embedder(states, recipe, model.device, allow_pickle=options.allow_pickle)
    if isinstance(states, PaddedScores):
        joins = reads_left_to_right(model.config)
        logger.info("Scores of pairs of texts of up to %d tokens", max_length)
        known = EmbeddingModel(embedder.size(), max_length, scores=True, joins_pairs=joins)
        return EmbeddingEngine(embedder, known, max_tokens, threads)
    sizes = _smaller_sizes(model.config, options)
    known = EmbeddingModel(embedder.size(), max_length, sizes, recipe.lower_case, prompts=recipe.prompts)
    how = f"{' and '.join(recipe.modes)}, {'normalized' if recipe.normalize else 'not normalized'}"
    logger.info("Embeddings of %d numbers: %s; inputs of up to %d tokens", known.size, how, max_length)
    if recipe.default_prompt is not None:
        logger.warning(
            "The model expects %r before each text by default: clients must add it, the server does not",
            recipe.default_prompt,
        )
    return EmbeddingEngine(embedder, known, max_tokens, threads)


def _load(options: EngineOptions) -> PreTrainedModel:
    config = read_config(options)
    factory = AutoModelForTextEncoding if is_encoder_of_two(config) else AutoModel
    # The faster attention does not apply Gemma 2's soft cap.
    capped = getattr(config.get_text_config(), "attn_logit_softcapping", None)
    arguments = {"attn_implementation": "eager"} if capped else {}
    return load_weights(factory, config, options, wrong_weights_of_base, **arguments)


def _load_scorer(options: EngineOptions) -> PreTrainedModel:
    config = read_config(options)
    check_scorer(options, config)
    return load_weights(AutoModelForSequenceClassification, config, options, wrong_weights_of_scorer)


def _max_input_length(model: PreTrainedModel, options: EngineOptions, recipe: Recipe) -> int:
    """Return the maximum number of tokens of an input."""
    length = context_length(model.config, options.max_model_len)
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, torch.nn.Embedding):
            # RoBERTa and related models start counting positions after the padding's.
            first = 0 if module.padding_idx is None else module.padding_idx + 1
            length = min(length, module.num_embeddings - first)
    return length if recipe.max_length is None else min(length, recipe.max_length)


def _smaller_sizes(config: PreTrainedConfig, options: EngineOptions) -> tuple[int, ...] | None:
    """Return the sizes of a matryoshka model, from the options or the model's configuration; None means any."""
    if options.embedding.any_dimensions:
        return None
    if options.embedding.dimensions is not None:
        return tuple(options.embedding.dimensions)
    named = getattr(config, "matryoshka_dimensions", None)
    if named:
        return tuple(named)
    return None if getattr(config, "is_matryoshka", False) else ()


def score_recipe(config: PreTrainedConfig, options: EmbeddingOptions) -> Recipe:
    """Return the step from logit to score, as vLLM reads it from the configuration: sigmoid by default.

    Raise ConfigurationError for an unknown activation.
    """
    of_sentence_transformers: dict[str, Any] = getattr(config, "sentence_transformers", None) or {}
    former: str | None = getattr(config, "sbert_ce_default_activation_function", None)
    name = of_sentence_transformers.get("activation_fn") or former or "torch.nn.modules.activation.Sigmoid"
    if config.problem_type == "regression":
        name = "torch.nn.modules.linear.Identity"
    try:
        return Recipe(("cls",), options.normalize is not False, activation=activation(name))
    except ValueError as error:
        raise ConfigurationError(f"{config.name_or_path}: {error}") from None
