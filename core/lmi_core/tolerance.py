"""Unknown request parameters, which are dropped, logged once, and listed in a header of the answer."""

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, Final, get_args

from pydantic import BaseModel

from lmi_core.backend import Backend
from lmi_core.errors import InvalidParameter
from lmi_core.errors.did_you_mean import did_you_mean
from lmi_core.generation.parameters import ExtendedParameters
from lmi_core.generation.request import GenerationRequest
from lmi_core.payloads.tolerant_payload import field_names, refusal_advice

logger = logging.getLogger(__name__)

MAX_REPORTED_NAMES = 200  # per model, so that made-up names fill neither the log nor the memory
MAX_LISTED_NAMES = 20  # names in one header
MAX_NAME_LENGTH = 60
MAX_READ_NAMES = 1000  # unknown names examined per request; real requests have fewer
UNSAFE = re.compile(r"[^\w!#$%&'*+.^`|~\[\]-]", re.ASCII)  # characters of a name not written to the header and the log

# Parameters of LMI or TGI that a backend may lack, with their neutral values; null is always neutral.
NEUTRAL: Final[Mapping[str, Any]] = {
    **{name: field.default for name, field in ExtendedParameters.model_fields.items()},
    "best_of": 1,
    "stop_sequences": [],
    "top_n_tokens": 0,
    "logit_bias": {},
    "bad_sequences": [],
    "stop_token_ids": [],
    "stop": False,  # of TensorRT-LLM
    "watermark": False,  # of TGI
    "vllm_fields": {},
}
# Ignoring one of these would change the answer.
KNOWN = ExtendedParameters.model_fields.keys() - {"cache_salt"} | {"stop", "vllm_fields"}


def drop_unknown(
    request: GenerationRequest, backend: Backend[Any], strict: bool
) -> tuple[GenerationRequest, tuple[str, ...]]:
    """Return the request without unknown parameters, and the client's names of dropped ones to report.

    Neutral values are dropped silently; if strict, nothing else is dropped. Raise InvalidParameter for a parameter that
    cannot be dropped without changing the answer.
    """
    foreign = request.parameters.keys() - field_names(backend.parameters_type)
    if not foreign or backend.parameters_type.model_config.get("extra") == "allow":
        return request, ()
    given = request.parameters
    neutral = {name for name in foreign if given[name] is None or is_neutral(name, given[name])}
    unknown = foreign - neutral - KNOWN
    for name in unknown:
        if instead := refusal_advice(name):
            raise InvalidParameter(f"`{name}` is not a parameter of this request: {instead}")
    ignored = {} if strict else {name: value for name, value in given.items() if name in unknown}
    kept = {name: value for name, value in given.items() if name not in neutral and name not in ignored}
    names = tuple(request.names.get(name, name) for name in ignored)
    return replace(request, parameters=kept, ignored=ignored), names


def is_neutral(name: str, value: object) -> bool:
    """Return whether a known parameter's value has no effect; booleans do not count as numbers."""
    if name not in NEUTRAL:
        return False
    neutral = NEUTRAL[name]
    return value == neutral and isinstance(value, bool) == isinstance(neutral, bool)


def names_of(payloads: Iterable[type[BaseModel]]) -> set[str]:
    """Return the field names of payload types and of their nested objects."""
    found: set[str] = set()
    for payload in payloads:
        found |= field_names(payload)
        for field in payload.model_fields.values():
            for inner in (field.annotation, *get_args(field.annotation)):
                if isinstance(inner, type) and issubclass(inner, BaseModel):
                    found |= field_names(inner)
    return found


def ignored_header(names: Iterable[str]) -> str:
    """Return the unique names as one header value, truncated, with `?` for invalid characters."""
    names = list(names)
    shown = list(dict.fromkeys(printable_name(name) for name in names[:MAX_READ_NAMES]))
    others = len(shown) - MAX_LISTED_NAMES + len(names[MAX_READ_NAMES:])
    more = [f"...{others}-more"] if others > 0 else []
    return ", ".join(shown[:MAX_LISTED_NAMES] + more)


def printable_name(name: str) -> str:
    """Return a client's parameter name in a form that is safe in a header and in the log."""
    return UNSAFE.sub("?", name[:MAX_NAME_LENGTH]) + ("..." if len(name) > MAX_NAME_LENGTH else "") or "?"


class IgnoredParameters:
    """A log of dropped parameters of a model's requests: each name once, up to a maximum number."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._reported: set[str] = set()

    def report(self, names: Iterable[str], known: Callable[[], Iterable[str]]) -> None:
        """Log the names not logged before, with a suggestion from `known` if they seem misspelled.

        For one request, no more are logged than the header lists.
        """
        found = dict.fromkeys(printable_name(name) for name in islice(names, MAX_READ_NAMES))
        new = [name for name in found if name not in self._reported]
        for name in new[: min(MAX_LISTED_NAMES, MAX_REPORTED_NAMES - len(self._reported))]:
            self._reported.add(name)
            logger.warning(
                "model %s: the request parameter `%s` is unknown and is ignored.%s (Logged once; "
                "option.strict_parameters=true refuses such requests.)",
                self._model,
                name,
                "" if "." in name else did_you_mean(name, known()),  # `tools.web_search` is no misspelt field
            )
            if len(self._reported) == MAX_REPORTED_NAMES:
                logger.warning("model %s: further ignored request parameters are not logged", self._model)
