"""`json`: the whole answer as one JSON object."""

from typing import ClassVar

import orjson

from lmi_core.errors import LmiError
from lmi_core.formatter import OutputFormatter
from lmi_core.generation.output import GenerationOutput
from lmi_core.generation.parameters import GenerationParameters
from lmi_core.payloads.spaced_json import encode_spaced
from lmi_plugins.formatters import lmi_schema


class JsonFormatter(OutputFormatter):
    name: ClassVar[str] = "json"
    content_type = "application/json"
    text_path: tuple[str, ...] = ("generated_text",)

    def format(self, output: GenerationOutput) -> bytes:
        # With spaces, because published clients of LMI search for the text `{"generated_text": "`.
        return encode_spaced(self.whole(output)) if output.finished else b""

    def reads_log_probs(self, parameters: GenerationParameters) -> bool:
        return parameters.details

    def error(self, error: LmiError) -> bytes:
        return encode_spaced(lmi_schema.error_object(error))

    def whole(self, output: GenerationOutput) -> lmi_schema.JsonObject:
        """Return the answer to a finished request, to be serialized as JSON."""
        answer: lmi_schema.JsonObject = {"generated_text": output.full_text(output.best_sequence)}
        if lmi_schema.has_details(output):
            answer["details"] = orjson.Fragment(encode_spaced(lmi_schema.details(output)))
        return answer
