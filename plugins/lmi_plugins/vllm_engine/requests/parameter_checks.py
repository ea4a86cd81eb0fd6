"""Which of LMI's parameters exclude each other with vLLM."""

from lmi_core.engines.extended_parameters import GUIDES, ExtendedParameters
from lmi_core.errors import InvalidParameter
from lmi_plugins.vllm_engine.requests.logits_processors import extra_arguments

DEFAULTS = ExtendedParameters()
# vLLM tells the log probs as they are before these.
CHANGES_OF_SCORES = (
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "no_repeat_ngram_size",
    "logit_bias",
    "bad_sequences",
)


def check_beams(parameters: ExtendedParameters) -> None:
    """Raises InvalidParameter."""
    excluded = {"do_sample": parameters.do_sample and parameters.temperature > 0}
    for name in (*CHANGES_OF_SCORES, *GUIDES):
        excluded[name] = bool(getattr(parameters, name)) and getattr(parameters, name) != getattr(DEFAULTS, name)
    for name, given in excluded.items():
        if given:
            raise InvalidParameter(f"`num_beams` above 1 and `{name}` exclude each other with vLLM")


def check_speculation(parameters: ExtendedParameters) -> None:
    """Raises InvalidParameter; vLLM itself refuses `min_p` and `logit_bias`."""
    for name in extra_arguments(parameters) or ():
        raise InvalidParameter(
            f"`{name}` and speculative decoding exclude each other with vLLM, which then runs no logits processors"
        )
