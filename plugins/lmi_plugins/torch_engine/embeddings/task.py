"""The task of a model (embedding, scoring or generation), and the default pooling."""

from pathlib import Path

from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_MASKED_LM_MAPPING, AutoConfig, PreTrainedConfig

from lmi_core.errors import ConfigurationError
from lmi_plugins.torch_engine.embeddings.recipe import has_recipe
from lmi_plugins.torch_engine.messages.embeddings import Pooling, Task
from lmi_plugins.torch_engine.messages.requests import EngineOptions
from lmi_plugins.torch_engine.model.loading import CLASSIFIER, SCORING

# Endings of architecture names, which vLLM also reads: the first match applies.
GENERATING = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel", "ChatModel")
EMBEDDING = ("Model", "ForMaskedLM", "ForPreTraining", "ForTextEncoding")


def choose_task(options: EngineOptions) -> Task:
    """Return the task in the options, or by default that of the model's files."""
    if options.embedding.task is not None:
        return options.embedding.task
    if has_recipe(Path(options.model)):
        return "embed"
    try:
        config = AutoConfig.from_pretrained(
            options.model, revision=options.revision, trust_remote_code=options.trust_remote_code
        )
    except Exception:
        return "generate"  # loading the model will report the fault
    if scores_pairs(config):
        return "score"
    return "embed" if _embeds(config) else "generate"


def scores_pairs(config: PreTrainedConfig) -> bool:
    """Return whether the model is a reranker: a classifier with one label, whose logit is the score of a pair."""
    return config.num_labels == 1 and any(name.endswith(CLASSIFIER) for name in config.architectures or [])


def check_scorer(options: EngineOptions, config: PreTrainedConfig) -> None:
    """Raise ConfigurationError for a model that is not a reranker."""
    if not scores_pairs(config):
        names = ", ".join(config.architectures or ["no architecture"])
        raise ConfigurationError(
            f"{options.model}: option.task asks for scores, which a model for sequence classification with one label "
            f"gives. Found: {names}, {config.num_labels} labels"
        )


def _embeds(config: PreTrainedConfig) -> bool:
    names = config.architectures or []
    if "AutoModelForCausalLM" in (getattr(config, "auto_map", None) or {}) or any(
        name.endswith(GENERATING) for name in names
    ):
        return False
    return any(name.endswith(EMBEDDING) and not name.endswith(SCORING) for name in names)


def is_encoder_of_two(config: PreTrainedConfig) -> bool:
    """Return whether the model is the encoder of an encoder-decoder model, such as T5."""
    names = config.architectures or []
    return bool(config.is_encoder_decoder) or any(name.endswith("EncoderModel") for name in names)


def default_pooling(config: PreTrainedConfig) -> Pooling:
    """Return vLLM's default pooling: the last token of causal models, and the first token of other encoders.

    For encoders of encoder-decoder models, which have no first special token, it is the mean.
    """
    if is_encoder_of_two(config):
        return "mean"
    return "lasttoken" if reads_left_to_right(config) else "cls"


def reads_left_to_right(config: PreTrainedConfig) -> bool:
    """Return whether transformers implements the model as a decoder only."""
    return type(config) in MODEL_FOR_CAUSAL_LM_MAPPING and type(config) not in MODEL_FOR_MASKED_LM_MAPPING
