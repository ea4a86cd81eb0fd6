"""Checks for combinations of LMI's parameters that vLLM does not support."""

from lmi_core.errors import InvalidParameter
from lmi_core.generation.parameters import GUIDES, ExtendedParameters
from lmi_plugins.vllm_engine.requests.logits_processors import ARGUMENT_NAMES, TRANSFERS, extra_arguments
from lmi_plugins.vllm_engine.requests.vllm_fields import fields_of

DEFAULTS = ExtendedParameters()
# vLLM's log probs do not include these.
CHANGES_OF_SCORES = (
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "no_repeat_ngram_size",
    "logit_bias",
    "bad_sequences",
    "allowed_token_ids",
    "reasoning_budget",
)


def check_beams(parameters: ExtendedParameters) -> None:
    """Raise InvalidParameter for parameters that beam search does not support."""
    excluded = {"do_sample": parameters.do_sample and parameters.temperature > 0}
    for name in (*CHANGES_OF_SCORES, *GUIDES):
        excluded[name] = bool(getattr(parameters, name)) and getattr(parameters, name) != getattr(DEFAULTS, name)
    for name, given in excluded.items():
        if given:
            raise InvalidParameter(f"`num_beams` above 1 and `{name}` cannot be used together with vLLM")


def check_speculation(parameters: ExtendedParameters) -> None:
    """Raise InvalidParameter for parameters that need logits processors; vLLM itself refuses `min_p` and
    `logit_bias`.
    """
    named = ["logprob_token_ids"] if parameters.logprob_token_ids else []
    for name in [*(extra_arguments(parameters) or ()), *named]:
        raise InvalidParameter(
            f"`{name}` and speculative decoding cannot be used together with vLLM, which does not run logits "
            "processors then"
        )


def check_passed_fields(parameters: ExtendedParameters) -> None:
    """Raise InvalidParameter for fields that would reach a processor or a connector unchecked, or have no reader."""
    passed = fields_of(parameters)
    for name in passed.vllm_xargs or ():
        if name in ARGUMENT_NAMES or name in TRANSFERS:
            raise InvalidParameter(f"`vllm_xargs` must not contain `{name}`, which is a separate parameter")
    for name in ("vllm_xargs", *TRANSFERS):
        if getattr(passed, name) and parameters.num_beams > 1:
            raise InvalidParameter(f"`num_beams` above 1 and `{name}` cannot be used together with vLLM")


def check_reasoning_budget(parameters: ExtendedParameters, vocabulary: int) -> None:
    """Raise InvalidParameter for ids outside the vocabulary, because forcing one would end the engine."""
    budget = parameters.reasoning_budget
    for marker in () if budget is None else (*budget.starts, *budget.ends):
        for token_id in marker:
            if token_id >= vocabulary:
                raise InvalidParameter(
                    f"`reasoning_budget` must contain token ids from 0 to {vocabulary - 1}. Given: {token_id}"
                )
