"""Scores of pairs of texts, from classifiers with one label: the logit in place of hidden states."""

from typing import Any

import torch
from transformers import PreTrainedConfig, PreTrainedModel

from lmi_core.errors import ConfigurationError
from lmi_plugins.torch_engine.embeddings.embedder import activation
from lmi_plugins.torch_engine.embeddings.hidden_states import PaddedStates
from lmi_plugins.torch_engine.embeddings.recipe import Recipe
from lmi_plugins.torch_engine.messages.embeddings import EmbeddingInput, EmbeddingOptions
from lmi_plugins.torch_engine.model.rope_by_length import RopeByLength


class PaddedScores(PaddedStates):
    """The logit of each pair, as the one hidden state of a text of one token."""

    def __init__(self, model: PreTrainedModel, rope: RopeByLength | None = None) -> None:
        super().__init__(model, rope)
        # Models that read from left to right find a text's last token by the padding.
        self.alone = self.alone or model.config.get_text_config().pad_token_id is None

    def states(self, texts: list[EmbeddingInput]) -> torch.Tensor:
        logits: torch.Tensor = self.output(texts).logits
        return logits[:, None]


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
