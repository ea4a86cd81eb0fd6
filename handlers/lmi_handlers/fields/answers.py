"""Request fields of vLLM that add token details to an answer of OpenAI's form."""

from typing import Self

from pydantic import Field, model_validator

from lmi_core.errors import InvalidPayload
from lmi_core.parameters import ALL_TOKENS
from lmi_handlers.fields.sampling import CallFields


class AnswerFields(CallFields):
    """A request's fields, with those that ask for token ids and the prompt's log probabilities."""

    prompt_logprobs: int | None = Field(
        None,
        ge=ALL_TOKENS,
        description="Answer with the prompt's log probabilities, and this many likeliest tokens at each token; "
        "-1: all of the vocabulary. Not in a stream.",
    )
    return_token_ids: bool | None = Field(None, description="Answer with the token ids of the prompt and the choices.")

    @model_validator(mode="after")
    def _no_stream_of_the_prompt(self) -> Self:
        if self.stream and self.prompt_logprobs:
            raise ValueError(
                f"`prompt_logprobs` must be 0 or null with `stream`, which has no place for them. "
                f"Given: {self.prompt_logprobs}"
            )
        return self

    @property
    def prompt_log_probs(self) -> int | None:
        """The number of likeliest tokens for the prompt; None in a stream, where vLLM accepts only 0 and ignores it."""
        return None if self.stream else self.prompt_logprobs

    def refuse_unshown(self, *names: str) -> None:
        """Raise InvalidPayload where one of the named fields is set, as another form of answer has no place for it."""
        for name in names:
            value = getattr(self, name)
            if value not in (None, {}) and value is not False:
                raise InvalidPayload(
                    f"`{name}` must be null in a request for another form of answer than OpenAI's, which has no place "
                    f"for it. Given: {value}"
                )
