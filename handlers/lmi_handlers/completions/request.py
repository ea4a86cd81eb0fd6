"""The completion request that OpenAI's dialect and LMI's share."""

from typing import Annotated

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from lmi_handlers.fields.passed import PassedFields

DEFAULT_MAX_TOKENS = 16
MAX_CHOICES = 1024  # for all prompts of a request together


def _as_prompts(given: object) -> object:
    """Return a list with one item for each prompt, given as one or several texts or lists of token ids."""
    if isinstance(given, str) or (isinstance(given, list) and given and _are_token_ids(given)):
        return [given]
    if isinstance(given, list) and given and all(isinstance(one, str) or _are_token_ids(one) for one in given):
        return given
    raise ValueError("must be a string, a list of token ids, or a list of strings or of lists of token ids")


def _are_token_ids(value: object) -> bool:
    return isinstance(value, list) and all(type(token_id) is int for token_id in value)


Prompts = Annotated[
    list[str | list[int]],
    BeforeValidator(_as_prompts, json_schema_input_type=str | list[str] | list[int] | list[list[int]]),
]


class CompletionRequest(PassedFields):
    """An OpenAI completion request, with the parameters that vLLM and LMI add."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"prompt": "Deep Learning is", "max_tokens": 64, "temperature": 0}]}
    )

    prompt: Prompts = Field(
        description="A string, or a list of token ids; or a list of such prompts, each with its own choices."
    )
    max_tokens: int | None = Field(
        None,
        ge=0,
        description=f"The maximum number of tokens to generate; 0 only with `echo`. Default: {DEFAULT_MAX_TOKENS}.",
    )
    echo: bool | None = Field(
        None, description="Return the prompt before the text, and its log probabilities before those of the text."
    )
    logprobs: int | None = Field(
        None,
        ge=0,
        le=20,
        description="Return the log probability of each token, with this many most likely tokens at each position.",
    )
    suffix: str | None = Field(
        None, description="The text after the generated text, for models that support fill-in-the-middle."
    )
    add_special_tokens: bool | None = Field(
        None, description="Add the special tokens that the model expects. Default: true."
    )

    @model_validator(mode="after")
    def _rules_about_several(self) -> "CompletionRequest":
        self._check_suffix()
        if self.max_tokens == 0 and not self.echo:
            raise ValueError("`max_tokens` must be at least 1 without `echo`. Given: 0")
        if len(self.prompt) * max(self.n or 1, self.best_of or 1) > MAX_CHOICES:
            raise ValueError(f"`prompt` and `n` must result in at most {MAX_CHOICES} choices")
        return self

    def _check_suffix(self) -> None:
        if not self.suffix:
            return
        if self.echo:
            raise ValueError(
                "`suffix` and `echo` cannot be used together: the answer contains only the text in the middle"
            )
        if self.truncate_prompt_tokens is not None:
            raise ValueError(
                "`suffix` and `truncate_prompt_tokens` cannot be used together: the truncation could cut off either "
                "text"
            )
        if not all(isinstance(prompt, str) for prompt in self.prompt):
            raise ValueError("`suffix` requires a `prompt` that is a string. Given: token ids")
