"""Request fields of vLLM that add token details to an answer of OpenAI's form."""

from typing import Self

from pydantic import Field, model_validator

from lmi_core.errors import InvalidPayload
from lmi_core.generation.parameters import ALL_TOKENS
from lmi_handlers.fields.sampling import CallFields


class AnswerFields(CallFields):
    """A request's fields, including those for token ids and the prompt's log probabilities."""

    prompt_logprobs: int | None = Field(
        None,
        ge=ALL_TOKENS,
        description="Return the prompt's log probabilities, with this many most likely tokens at each position; -1 "
        "means the whole vocabulary. Not with `stream`.",
    )
    return_token_ids: bool | None = Field(None, description="Return the token ids of the prompt and of the choices.")

    @model_validator(mode="after")
    def _no_stream_of_the_prompt(self) -> Self:
        if self.stream and self.prompt_logprobs:
            raise ValueError(
                "`prompt_logprobs` must be 0 or null with `stream`, whose format has no field for them. Given: "
                f"{self.prompt_logprobs}"
            )
        return self

    @property
    def prompt_log_probs(self) -> int | None:
        """The number of top tokens for the prompt; None in a stream, where vLLM accepts only 0 and ignores it."""
        return None if self.stream else self.prompt_logprobs

    def refuse_unshown(self, *names: str) -> None:
        """Raise InvalidPayload if one of the named fields is set, because another form of answer cannot contain it."""
        for name in names:
            value = getattr(self, name)
            if value not in (None, {}) and value is not False:
                raise InvalidPayload(
                    f"`{name}` must be null unless the answer is in OpenAI's format, as other formats have no field "
                    f"for it. Given: {value}"
                )
