"""The parameters of LMI that a backend of texts obeys, and those that it leaves to its author."""

import inspect
from typing import Final

from lmi_core.generation.extended_parameters import EngineParameters, ExtendedParameters
from lmi_core.generation.parameters import GenerationParameters

# TextBackend does these itself; a cache salt changes no answer, and texts have no special tokens.
DONE: Final = frozenset(
    {
        "best_of",
        "cache_salt",
        "include_stop_str_in_output",
        "logprobs",
        "n",
        "prompt_logprobs",
        "skip_special_tokens",
        "spaces_between_special_tokens",
        "top_n_tokens",
        "truncate",
    }
)
# Only the author's `generate` can do these.
LEFT_TO_THE_AUTHOR: Final = ExtendedParameters.model_fields.keys() - GenerationParameters.model_fields.keys() - DONE


def is_inherited(parameters_type: type[GenerationParameters], name: str) -> bool:
    """Return whether the parameter is one that the author neither declared nor TextBackend does."""
    if name not in LEFT_TO_THE_AUTHOR:
        return False
    declaring = (base for base in parameters_type.__mro__ if name in inspect.get_annotations(base))
    return next(declaring, None) in (EngineParameters, ExtendedParameters)
