"""What a formatter may ask about the call that it writes the answer to."""

from dataclasses import dataclass
from typing import Any

from lmi_core.script.formatters.request_io import RequestInput


@dataclass(frozen=True)
class CallContext:
    """What a formatter may ask about the call, beside what was generated."""

    request_id: str
    tokenizer: Any = None
    request_input: RequestInput | None = None
    tgi_compat: bool = False
    adapter: str | None = None
    time_limit: float = 120.0  # seconds, for one step
    model: str = ""
