"""A formatter's view of its call."""

from dataclasses import dataclass
from typing import Any

from lmi_core.script.formatters.request_io import RequestInput


@dataclass(frozen=True)
class CallContext:
    """The properties of a call that formatters may read besides the output."""

    request_id: str
    tokenizer: Any = None
    request_input: RequestInput | None = None
    tgi_compat: bool = False
    adapter: str | None = None
    time_limit: float = 120.0  # seconds allowed for one step
    model: str = ""
