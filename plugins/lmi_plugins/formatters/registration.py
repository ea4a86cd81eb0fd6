"""The output formatters."""

from collections.abc import Callable

from lmi_core.formatter import OutputFormatter
from lmi_core.hookspecs import hookimpl
from lmi_plugins.formatters.async_mode import AsyncJsonFormatter, AsyncJsonLinesFormatter
from lmi_plugins.formatters.dynamic import DynamicJsonFormatter, DynamicJsonLinesFormatter
from lmi_plugins.formatters.json import JsonFormatter
from lmi_plugins.formatters.jsonlines import JsonLinesFormatter
from lmi_plugins.formatters.none import NoFormatter
from lmi_plugins.formatters.sse import SseFormatter
from lmi_plugins.formatters.tgi import TgiJsonFormatter, TgiJsonLinesFormatter, TgiSseFormatter

FORMATTERS = (
    JsonFormatter,
    JsonLinesFormatter,
    SseFormatter,
    TgiJsonFormatter,
    TgiJsonLinesFormatter,
    TgiSseFormatter,
    AsyncJsonFormatter,
    AsyncJsonLinesFormatter,
    DynamicJsonFormatter,
    DynamicJsonLinesFormatter,
    NoFormatter,
)


@hookimpl
def lmi_register_formatters(register: Callable[[type[OutputFormatter]], None]) -> None:
    for formatter in FORMATTERS:
        register(formatter)
