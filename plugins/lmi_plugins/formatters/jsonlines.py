"""`jsonlines`: a line for each token as it is generated; the last one also contains the whole text."""

from typing import ClassVar

import orjson

from lmi_core.errors import LmiError
from lmi_core.formatter import OutputFormatter
from lmi_core.generation.output import NO_TOKEN, GenerationOutput, Token
from lmi_plugins.formatters import lmi_schema


class JsonLinesFormatter(OutputFormatter):
    name: ClassVar[str] = "jsonlines"
    one_sequence = True
    content_type = "application/jsonlines"
    text_path: tuple[str, ...] = ("token", "text")
    full_text: ClassVar[str | None] = "generated_text"

    def format(self, output: GenerationOutput) -> list[bytes]:
        step = output.step
        if step.finish_reason is None:
            return [self.frame(self.chunk(output, token)) for token in step.tokens]
        *tokens, last = step.tokens or [NO_TOKEN]
        chunks = [self.chunk(output, token) for token in tokens] + [self.last_chunk(output, last)]
        return [self.frame(chunk) for chunk in chunks]

    def error(self, error: LmiError) -> bytes:
        return self.frame(lmi_schema.error_chunk(error))

    def chunk(self, output: GenerationOutput, token: Token) -> lmi_schema.JsonObject:
        return {"token": lmi_schema.token_object(token)}

    def last_chunk(self, output: GenerationOutput, token: Token) -> lmi_schema.JsonObject:
        last = self.chunk(output, token) | {"generated_text": output.full_text(output.sequence)}
        if output.request.parameters.details:
            last["details"] = lmi_schema.stream_details(output)
        return last

    def frame(self, chunk: lmi_schema.JsonObject) -> bytes:
        """Return a serialized chunk with its framing."""
        return orjson.dumps(chunk, option=orjson.OPT_APPEND_NEWLINE)
