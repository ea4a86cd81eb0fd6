"""User functions as output formatters, with a class for each contract."""

import time
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from lmi_core.decorators import OUTPUT_MARK, OutputMark
from lmi_core.errors import FormatterFailed, InvalidPayload, LmiError
from lmi_core.formatter import OutputFormatter
from lmi_core.generation.output import GenerationOutput, GenerationStep
from lmi_core.script.djl_names.outputs import BYTES, TEXT
from lmi_core.script.formatters.contracts import OutputContract, Reading, numbers_tokens, read_output_contract
from lmi_core.script.formatters.engine_response import EngineResponse, plain
from lmi_core.script.formatters.frames import (
    WHOLE,
    WrongResult,
    change_frames,
    encode,
    frame,
    has_frames,
    media_type,
)
from lmi_core.script.formatters.request_io import CallContext, TextGenerationOutput
from lmi_core.script.formatters.text_generation import add_tokens, error_token, legacy_details, new_request_output
from lmi_core.script.time_limits import TimeLimitExceeded, time_limit
from lmi_core.script.tracebacks import formatter_failure


@dataclass(frozen=True)
class FormatterFunction:
    """An output formatter function, with its contract and mark."""

    name: str
    function: Callable[..., Any]
    reading: Reading[OutputContract]
    directory: Path
    content_type: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    numbers_tokens: bool = False  # whether `get_next_token` returns the token's index too


def formatter_function(function: Callable[..., Any], directory: Path) -> FormatterFunction:
    """Return the function with its contract. Raise ConfigurationError if it follows no contract."""
    mark = getattr(function, OUTPUT_MARK, None) or OutputMark(getattr(function, "__name__", "output_formatter"))
    reading = read_output_contract(function, own_decorator=mark.own)
    numbered = numbers_tokens(function)
    return FormatterFunction(mark.name, function, reading, directory, mark.content_type, mark.headers, numbered)


def custom_formatter(custom: FormatterFunction, base: OutputFormatter, context: CallContext) -> "CustomFormatter":
    """Create the formatter of one call that uses the function instead of `base`."""
    return _CLASSES[custom.reading.contract](custom, base, context)


class CustomFormatter(OutputFormatter):
    """An output formatter that calls a user function instead of `base`; its results are final."""

    name: ClassVar[str] = "custom"

    def __init__(self, custom: FormatterFunction, base: OutputFormatter, context: CallContext) -> None:
        self.custom = custom
        self.base = base
        base.is_changed = True
        self.context = context
        self.content_type = custom.content_type or base.content_type
        self.headers = custom.headers
        self.is_settled = custom.content_type is not None
        self.whole = media_type(base.content_type) == WHOLE

    def format(self, output: GenerationOutput) -> bytes | list[bytes]:
        try:
            with time_limit(self.context.time_limit):
                return self.answer(output)
        except LmiError:
            raise
        except WrongResult as error:
            raise FormatterFailed(
                f"the output formatter {self.custom.name} is called as {self.custom.reading.contract}, and returned a "
                f"wrong type: {error}"
            ) from None
        except TimeLimitExceeded as error:
            self._failure(error)
            raise FormatterFailed(
                f"the output formatter {self.custom.name} took longer than"
                f" option.predict_timeout={self.context.time_limit:g} seconds"
            ) from None
        except (Exception, SystemExit) as error:
            raise self._failure(error) from error

    def error(self, error: LmiError) -> bytes | list[bytes]:
        """Return the function's own text for the error, otherwise that of `base`."""
        try:
            words = b"" if isinstance(error, FormatterFailed) else self.answer_error(error)
        except (Exception, SystemExit) as failure:
            self._failure(failure)
            words = b""
        if words:
            return words
        self.content_type = self.base.content_type  # if nothing was sent, the answer is only the text
        return self.base.error(error)

    @abstractmethod
    def answer(self, output: GenerationOutput) -> bytes | list[bytes]: ...

    def answer_error(self, error: LmiError) -> bytes:
        return b""

    def _failure(self, error: BaseException) -> FormatterFailed:
        custom = self.custom
        formatter, module = f"output formatter {custom.name}", custom.function.__module__
        return formatter_failure(formatter, error, custom.directory, module, self.context.request_id)


class PieceFormatter(CustomFormatter):
    """A formatter that calls the function as the output grows, and joins the results of a whole answer at the end."""

    def __init__(self, custom: FormatterFunction, base: OutputFormatter, context: CallContext) -> None:
        super().__init__(custom, base, context)
        self._kept: dict[int, list[bytes]] = {}  # by the prompt's index in its call
        self._typed = custom.content_type is not None

    def answer(self, output: GenerationOutput) -> bytes | list[bytes]:
        results = self.results(output)
        if not self.whole:
            return b"".join([self._frame(result) for result in results])
        for result in results:
            kept = self._kept.setdefault(output.prompt_index, [])
            data = self._encode(result)
            if not isinstance(result, str | bytes | bytearray) and result is not None:
                kept.clear()  # an object is the whole answer so far, and replaces the previous one
            kept.append(data)
        if not output.finished:
            return b""
        return b"".join([piece for place in sorted(self._kept) for piece in self._kept[place]])

    @abstractmethod
    def results(self, output: GenerationOutput) -> list[Any]:
        """Call the function for the latest step, once or several times, and return its results."""

    def type_of(self, result: Any) -> str | None:
        """Return the content type of a result, or None for that of `base`."""
        return None

    def _frame(self, result: Any) -> bytes:
        data = self._encode(result)
        return frame(data, self.content_type) if data and not isinstance(result, str | bytes | bytearray) else data

    def _encode(self, result: Any) -> bytes:
        if result is None:
            return b""
        if not self._typed:
            self.content_type = self.type_of(result) or self.content_type
            self._typed = True
        return encode(plain(result))


class GenerationOutputFormatter(PieceFormatter):
    """`f(output: GenerationOutput) -> str | bytes | dict | None`."""

    _output: GenerationOutput | None = None

    def results(self, output: GenerationOutput) -> list[Any]:
        self._output = output
        return [self.custom.function(output)]

    def answer_error(self, error: LmiError) -> bytes:
        if self._output is None:
            return b""
        self._output.error = error
        self._output.step = GenerationStep([], sequence_index=self._output.step.sequence_index)
        return self._frame(self.custom.function(self._output))

    def type_of(self, result: Any) -> str | None:
        if isinstance(result, str):
            return TEXT
        return BYTES if isinstance(result, bytes | bytearray) else None


class RequestOutputFormatter(PieceFormatter):
    """`f(request_output: TextGenerationOutput) -> str`, called once for each token."""

    def __init__(self, custom: FormatterFunction, base: OutputFormatter, context: CallContext) -> None:
        super().__init__(custom, base, context)
        self._outputs: dict[int, TextGenerationOutput] = {}  # by the prompt's index in its call

    def results(self, output: GenerationOutput) -> list[Any]:
        request_output = self._outputs.get(output.prompt_index)
        if request_output is None:
            request_output = new_request_output(output, self.context, not self.whole, self.custom.numbers_tokens)
            self._outputs[output.prompt_index] = request_output
        return [self.call(request_output) for _ in add_tokens(request_output, output)]

    def answer_error(self, error: LmiError) -> bytes:
        """Pass one more token to the function, without text and with the finish reason `error`."""
        words = b""
        for request_output in self._outputs.values():
            if not request_output.finished:
                error_token(request_output, error)
                words += self._encode(self.call(request_output))
        return words

    def call(self, request_output: TextGenerationOutput) -> Any:
        return self.custom.function(request_output)


class LegacyFormatter(RequestOutputFormatter):
    """`f(token, first_token, last_token, details, generated_text, request_id) -> str`, called once for each token."""

    def call(self, request_output: TextGenerationOutput) -> Any:
        sequence = request_output.sequences[request_output.best_sequence_index]
        token, *_, first, last = sequence.get_next_token()
        details, generated_text = legacy_details(request_output, last=bool(last))
        return self.custom.function(token, first, last, details, generated_text, request_output.request_id)


class ResponseDataFormatter(CustomFormatter):
    """`f(response_data: dict) -> dict`, called with each JSON object that `base` writes."""

    def answer(self, output: GenerationOutput) -> bytes | list[bytes]:
        if not has_frames(self.base.content_type):
            raise FormatterFailed(
                f"the output formatter {self.custom.name} changes JSON, but {self.base.content_type} contains none"
            )
        data = self.base.format(output)
        if isinstance(data, list):
            return [changed for event in data if (changed := self._change_data(event, output))]
        return self._change_data(data, output) if data else b""

    def change(self, data: dict[str, Any], output: GenerationOutput) -> Any:
        return self.custom.function(data)

    def _change_data(self, data: bytes, output: GenerationOutput) -> bytes:
        return change_frames(data, self.base.content_type, lambda found: plain(self.change(found, output)))


class EngineObjectFormatter(ResponseDataFormatter):
    """`f(response) -> response`, called with each JSON object that `base` writes, as an object with attributes."""

    def __init__(self, custom: FormatterFunction, base: OutputFormatter, context: CallContext) -> None:
        base = base.engine_form or base
        if base.repeats_text:
            raise InvalidPayload(
                f"`stream` must be false: the model's output formatter {custom.name} changes texts, and streams of "
                "this route send texts again that were already sent"
            )
        super().__init__(custom, base, context)
        self._created = int(time.time())
        self._so_far = ""  # text of the chunks so far
        self._changed_to = ""

    def change(self, data: dict[str, Any], output: GenerationOutput) -> Any:
        context = self.context
        response = EngineResponse(data, output, self.base.text_path, context.request_id, context.model, self._created)
        result = self.custom.function(response.object)
        if result is not response.object:
            return result
        changed = response.data(result)
        if self.base.full_text is not None and response.texts:
            self._so_far += response.texts[0]
            self._changed_to += response.changed_texts(result)[0]
            text = changed.get(self.base.full_text)
            if isinstance(text, str) and self._so_far != self._changed_to and text.endswith(self._so_far):
                changed[self.base.full_text] = text.removesuffix(self._so_far) + self._changed_to
        return changed


_CLASSES: dict[OutputContract, type[CustomFormatter]] = {
    OutputContract.GENERATION_OUTPUT: GenerationOutputFormatter,
    OutputContract.REQUEST_OUTPUT: RequestOutputFormatter,
    OutputContract.LEGACY: LegacyFormatter,
    OutputContract.RESPONSE_DATA: ResponseDataFormatter,
    OutputContract.ENGINE_OBJECT: EngineObjectFormatter,
}
