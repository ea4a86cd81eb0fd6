"""An answer that no formatter writes."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer that no formatter writes: an error before anything was sent, or what needs no generation."""

    status: int
    content_type: str
    body: bytes
    ignored: tuple[str, ...] = ()  # fields of the request that were dropped, as nobody knows them
