"""A call for text, as its dialect understood it."""

from dataclasses import dataclass

from lmi_core.formatter import OutputFormatter
from lmi_core.request import GenerationRequest


@dataclass(frozen=True, slots=True)
class Generation:
    """A call as its dialect understood it: the prompts, and what writes the answer."""

    requests: tuple[GenerationRequest, ...]
    formatter: OutputFormatter
    timeout: float | None = None  # most seconds for the answer
    ignored: tuple[str, ...] = ()  # what `parse` dropped, as nobody knows it, by the client's names
    request_id: str | None = None  # the call's from here on, where its body names it; None: as before
    strict: bool = False  # a parameter that nobody knows is an error, whatever option.strict_parameters says
