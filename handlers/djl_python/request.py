"""`Request`: the requests of a `ParsedInput`."""

from lmi_core.script.formatters.request_io import RequestInput, TextGenerationOutput, Token

__all__ = ["Request"]


class Request:
    """A request of a function's batch."""

    def __init__(self, request_input: RequestInput) -> None:
        self.id = request_input.request_id
        self.request_input = request_input
        self.parameters = request_input.server_parameters
        self.input_text = getattr(request_input, "input_text", None)
        self.adapter = getattr(request_input, "adapters", None)
        self.last_token = False
        self.request_output = TextGenerationOutput(self.id, request_input)

    def set_next_token(
        self,
        next_token: Token | str,
        last_token: bool = False,
        finish_reason: str | None = None,
        prompt_tokens_details: list[Token] | None = None,
    ) -> None:
        token = Token(-1, next_token) if isinstance(next_token, str) else next_token
        token.request_id = self.id
        self.request_output.set_next_token(token, is_last_token=last_token, finish_reason=finish_reason)
        self.request_output.prompt_tokens_details = prompt_tokens_details or []
        self.last_token = self.request_output.finished = last_token

    def is_last_token(self) -> bool:
        return self.last_token
