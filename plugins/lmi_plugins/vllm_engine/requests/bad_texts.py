"""A logits processor that bans bad texts in all tokenizations; vLLM's own `bad_words` covers only a few."""

from collections.abc import Callable
from typing import Any

import torch

from lmi_core.generation.parameters import ExtendedParameters
from lmi_core.texts.bad_texts.text_ban import TextBan, TokenIndexes
from lmi_core.texts.huggingface_tokenizer import HuggingFaceTokenizer
from lmi_plugins.vllm_engine.library import (
    AdapterLogitsProcessor,
    ModelConfig,
    SamplingParams,
    VllmConfig,
    generation_eos_token_ids,
)

BAD_SEQUENCES = "bad_sequences"


def bad_text_arguments(parameters: ExtendedParameters) -> dict[str, Any] | None:
    """Return the processor's arguments for a request; None if it has nothing to do."""
    if not parameters.bad_sequences:
        return None
    return {
        "texts": parameters.bad_sequences,
        "skip_special_tokens": parameters.skip_special_tokens,
        "spaces_between_special_tokens": parameters.spaces_between_special_tokens,
    }


class BadTextsProcessor(AdapterLogitsProcessor):
    """A processor that bans tokens that would complete a bad text; without bad texts, it costs nothing."""

    def __init__(self, vllm_config: VllmConfig, device: torch.device, is_pin_memory: bool) -> None:
        super().__init__(vllm_config, device, is_pin_memory)
        self._model_config = vllm_config.model_config
        self._vocabulary: Vocabulary | None = None  # set when a request needs it

    def is_argmax_invariant(self) -> bool:
        return False

    def new_req_logits_processor(self, params: SamplingParams) -> Callable[..., torch.Tensor] | None:
        asked = (params.extra_args or {}).get(BAD_SEQUENCES)
        if asked is None:
            return None
        if self._vocabulary is None:
            self._vocabulary = Vocabulary(self._model_config)
        ban = self._vocabulary.indexes.ban(**asked, ignore_end=params.ignore_eos)
        return RequestBan(ban, self._vocabulary.eos_token_id)


class Vocabulary:
    """The model's tokens, for vLLM's sampling process."""

    def __init__(self, config: ModelConfig) -> None:
        tokenizer = HuggingFaceTokenizer.load(config.tokenizer, config.tokenizer_revision, config.trust_remote_code)
        self.eos_token_id: int | None = tokenizer.pretrained.eos_token_id
        own_end = frozenset() if self.eos_token_id is None else frozenset([self.eos_token_id])
        self.indexes = TokenIndexes(tokenizer, config.get_vocab_size(), generation_eos_token_ids(config) | own_end)


class RequestBan:
    """The ban of one request's bad texts."""

    def __init__(self, ban: TextBan, eos_token_id: int | None) -> None:
        self._ban = ban
        self._eos_token_id = eos_token_id
        self._always: torch.Tensor | None = None  # on the device of the logits

    def __call__(self, output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
        """Return the logits with banned tokens masked. logits: [vocabulary]."""
        if self._always is None:
            self._always = torch.from_numpy(self._ban.always).to(logits.device)
        kept = logits.index_fill(0, self._always, -torch.inf)
        completing = self._ban.completing(output_ids, 0)
        if completing is not None:
            kept.index_fill_(0, torch.from_numpy(completing).to(logits.device), -torch.inf)
        if self._eos_token_id is not None:
            # If a guide only allows bad tokens, the end remains, which the guide then refuses: the request fails
            # instead of vLLM choosing among forbidden tokens.
            kept[self._eos_token_id] = torch.where(kept.isneginf().all(), 0.0, kept[self._eos_token_id])
        return kept
