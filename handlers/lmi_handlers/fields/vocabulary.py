"""From a dialect's names of parameters to LMI's."""

from collections.abc import Mapping
from typing import Any

from lmi_core.errors import InvalidPayload

SAMPLING = frozenset({"temperature", "top_k", "top_p", "min_p", "typical_p"})
# TGI's parameters of sampling, with the values that change no probability.
TGI_NEUTRAL = {"temperature": (1,), "top_k": (0, -1), "top_p": (1,), "typical_p": (1,)}


def translate(given: Mapping[str, Any], names: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """The parameters by LMI's names, and what the client called those that it calls otherwise.

    Raises InvalidPayload when it names one of them twice.
    """
    parameters: dict[str, Any] = {}
    spellings: dict[str, str] = {}
    for spelling, value in given.items():
        name = names.get(spelling, spelling)
        if value is None:
            continue
        if name in parameters:
            raise InvalidPayload(f"`{spellings[name]}` and `{spelling}` are the same parameter; give one of them")
        parameters[name], spellings[name] = value, spelling
    return parameters, spellings


def sample_if_asked(parameters: dict[str, Any]) -> None:
    """Where `do_sample` is not given, a parameter of sampling means it."""
    if SAMPLING & parameters.keys():
        parameters.setdefault("do_sample", True)


def sample_as_tgi(parameters: dict[str, Any]) -> None:
    """Set `do_sample` where a parameter of sampling has an effect, whatever the client's says, as TGI does.

    Beam search, which TGI does not have, excludes sampling.
    """
    if parameters.get("num_beams", 1) == 1 and any(
        parameters.get(name, neutral[0]) not in neutral for name, neutral in TGI_NEUTRAL.items()
    ):
        parameters["do_sample"] = True


def refuse_hidden_sequences(parameters: Mapping[str, Any], spellings: Mapping[str, str]) -> None:
    """Raises InvalidPayload for a stream of sequences of which only the likeliest, known at its end, are wanted."""
    wanted = parameters.get("n", 1)
    for name in ("best_of", "num_beams"):
        given = parameters.get(name, 1)
        if isinstance(given, int) and isinstance(wanted, int) and given > wanted:
            spelling = spellings.get(name, name)
            raise InvalidPayload(f"`{spelling}` must be at most {wanted}, the sequences to stream. Given: {given}")
