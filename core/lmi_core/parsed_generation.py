"""A parsed call for text."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from lmi_core.formatter import OutputFormatter
from lmi_core.generation.request import GenerationRequest


@dataclass(frozen=True, slots=True)
class Generation:
    """A parsed call for text: the prompts, and the formatter of the answer."""

    requests: tuple[GenerationRequest, ...]
    formatter: OutputFormatter
    timeout: float | None = None  # seconds allowed for the answer
    ignored: tuple[str, ...] = ()  # names of the unknown fields that `parse` dropped, also in objects
    request_id: str | None = None  # the call's from here on, where its body names it; None: as before
    headers: Mapping[str, str] = field(default_factory=dict)  # of the answer, whoever writes it
    strict: bool = False  # an unknown parameter is an error, whatever option.strict_parameters says
