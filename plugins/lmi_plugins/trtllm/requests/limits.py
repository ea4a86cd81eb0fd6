"""The limits of requests, as set when TensorRT-LLM builds an engine."""

from typing import TYPE_CHECKING

import msgspec

from lmi_core.errors import ContextLengthExceeded, InvalidParameter

if TYPE_CHECKING:
    from lmi_plugins.trtllm.requests.inference_request import InferenceRequest


class RequestLimits(msgspec.Struct, frozen=True):
    """Limits on the requests of a model; with None, only its context and memory limit them."""

    max_input_len: int | None = None  # tokens in a prompt
    max_output_len: int | None = None  # tokens to generate
    max_num_tokens: int | None = None  # tokens in one step; a prompt must fit
    max_beam_width: int | None = None
    max_draft_len: int | None = None

    @property
    def max_input_length(self) -> int | None:
        return min([each for each in (self.max_input_len, self.max_num_tokens) if each is not None], default=None)

    def check(self, request: "InferenceRequest") -> None:
        """Raise ContextLengthExceeded or InvalidParameter for a request beyond a limit."""
        length = request.input_length
        for name in ("max_input_len", "max_num_tokens"):
            most = getattr(self, name)
            if most is not None and length > most:
                raise ContextLengthExceeded(f"`input_ids` must have at most {most} tokens ({name}). Given: {length}")
        if self.max_output_len is not None and request.output_length > self.max_output_len:
            raise InvalidParameter(
                f"`request_output_len` must be at most {self.max_output_len} (max_output_len)."
                f" Given: {request.output_length}"
            )
        drafted = len(request.ids("draft_input_ids"))
        if self.max_draft_len is not None and drafted > self.max_draft_len:
            raise InvalidParameter(
                f"`draft_input_ids` must have at most {self.max_draft_len} tokens (max_draft_len). Given: {drafted}"
            )
        self.check_beams("beam_width", request.beam_width)

    def check_beams(self, name: str, beams: int) -> None:
        """Raise InvalidParameter for more beams than the limit."""
        if self.max_beam_width is not None and beams > self.max_beam_width:
            raise InvalidParameter(f"`{name}` must be at most {self.max_beam_width} (max_beam_width). Given: {beams}")


NO_LIMITS = RequestLimits()
