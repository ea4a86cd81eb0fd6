"""Translation of a dialect's parameter names into LMI's."""

from collections.abc import Mapping
from typing import Any

from lmi_core.errors import InvalidPayload
from lmi_core.generation.parameters import SAMPLING_NAMES

TGI_NAMES = {"stop": "stop_sequences"}
# vLLM's names of parameters that have other names in LMI; OpenAI's, happy_vllm's and Triton's routes add their own.
VLLM_NAMES = {
    "max_tokens": "max_new_tokens",
    "min_tokens": "min_length",
    "bad_words": "bad_sequences",
    "ignore_eos": "ignore_eos_token",
}
# TGI's sampling parameters and their neutral values.
TGI_NEUTRAL = {"temperature": (1,), "top_k": (0, -1), "top_p": (1,), "typical_p": (1,)}


def translate(given: Mapping[str, Any], names: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the parameters by LMI's names, and the client's name of each.

    Raise InvalidPayload if two names mean one parameter.
    """
    parameters: dict[str, Any] = {}
    spellings: dict[str, str] = {}
    for spelling, value in given.items():
        name = names.get(spelling, spelling)
        if value is None:
            continue
        if name in parameters:
            raise InvalidPayload(f"`{spellings[name]}` and `{spelling}` are the same parameter: give only one of them")
        parameters[name], spellings[name] = value, spelling
    return parameters, spellings


def sample_if_given(parameters: dict[str, Any]) -> None:
    """Set `do_sample` if it is missing and a sampling parameter is given."""
    if SAMPLING_NAMES & parameters.keys():
        parameters.setdefault("do_sample", True)


def sample_as_tgi(parameters: dict[str, Any]) -> None:
    """Set `do_sample` if a sampling parameter has an effect, overriding the client's value as in TGI.

    A beam search, which TGI lacks, never samples.
    """
    if parameters.get("num_beams", 1) == 1 and any(
        parameters.get(name, neutral[0]) not in neutral for name, neutral in TGI_NEUTRAL.items()
    ):
        parameters["do_sample"] = True


def refuse_hidden_sequences(parameters: Mapping[str, Any], spellings: Mapping[str, str]) -> None:
    """Raise InvalidPayload for a stream of the best of several sequences, which is known only at the end."""
    wanted = parameters.get("n", 1)
    for name in ("best_of", "num_beams"):
        given = parameters.get(name, 1)
        if isinstance(given, int) and isinstance(wanted, int) and given > wanted:
            spelling = spellings.get(name, name)
            raise InvalidPayload(
                f"`{spelling}` must be at most {wanted}, the number of sequences in the stream. Given: {given}"
            )
