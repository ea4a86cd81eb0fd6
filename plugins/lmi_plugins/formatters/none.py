"""`none`: the plain generated text as it is generated."""

from typing import ClassVar

from lmi_core.errors import LmiError
from lmi_core.formatter import OutputFormatter
from lmi_core.generation.output import GenerationOutput


class NoFormatter(OutputFormatter):
    name: ClassVar[str] = "none"
    one_sequence = True
    content_type = "text/plain; charset=utf-8"

    def __init__(self) -> None:
        self._begun = False

    def format(self, output: GenerationOutput) -> bytes:
        text = "".join([token.text for token in output.step.tokens])
        if not self._begun and output.request.parameters.return_full_text:
            text = output.request.prompt + text
        self._begun = True
        return text.encode()

    def error(self, error: LmiError) -> bytes:
        return f"error: {error.message}\n".encode()
