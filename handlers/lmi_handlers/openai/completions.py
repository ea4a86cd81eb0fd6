"""The handler of OpenAI's completions, of the list of models, and of vLLM's routes to a tokenizer."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from lmi_core.calls.answer_form import of_output_formatter
from lmi_core.errors import InvalidPayload
from lmi_core.formatter import OutputFormatter
from lmi_core.generation.parameters import ALL_TOKENS
from lmi_core.generation.request import GenerationRequest
from lmi_core.handler import Call, Generation, Route
from lmi_core.served_model import ServedModel
from lmi_core.texts.fill_in_the_middle import middle_prompt
from lmi_handlers.answers.lmi import ANSWERS as LMI_ANSWERS
from lmi_handlers.answers.openai import COMPLETION
from lmi_handlers.base.openai_handler import JSON_LINES, OpenAiHandler, check_model
from lmi_handlers.base.tokenizing import ROUTES as TOKENIZER_ROUTES
from lmi_handlers.chat.reasoning_limit import completion_context, reasoning_limit
from lmi_handlers.fields.openai_tolerance import take_fields
from lmi_handlers.fields.own_parameters import take_own, with_own
from lmi_handlers.fields.passed import TRANSFERS, PassedFields
from lmi_handlers.fields.users import log_user
from lmi_handlers.openai.completion_formatters import (
    CompletionAnswer,
    OpenAiCompletionsFormatter,
    OpenAiCompletionsStreamFormatter,
)
from lmi_handlers.openai.models import ERRORS as MODEL_ERRORS
from lmi_handlers.openai.models import LISTED, SHOWN, list_models, show_model

DEFAULT_MAX_TOKENS = 16
MAX_CHOICES = 1024  # of all prompts of a request together

Written = tuple[tuple[GenerationRequest, ...], OutputFormatter]  # requests, and what writes their answers


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


class OpenAiCompletionsHandler(OpenAiHandler):
    name: ClassVar[str] = "openai_completions"
    summary: ClassVar[str] = "OpenAI's completions and models, and vLLM's routes to a tokenizer"
    routes: ClassVar[tuple[Route, ...]] = (
        Route(
            "/v1/completions",
            summary="Complete a text",
            payloads=(CompletionRequest,),
            answers=(*COMPLETION, *of_output_formatter(LMI_ANSWERS)),
        ),
        Route("/v1/models", "GET", list_models, "List the served models", answers=(*LISTED, *MODEL_ERRORS)),
        Route(
            "/v1/models/{model}", "GET", show_model, "Show one of the served models", answers=(*SHOWN, *MODEL_ERRORS)
        ),
        *TOKENIZER_ROUTES,
    )

    def parse(self, call: Call, model: ServedModel) -> Generation:
        given, own = take_own(call.json_object(), model, CompletionRequest)
        payload, ignored = take_fields(given, CompletionRequest, model.options.strict_parameters)
        check_model(payload.model, call, model)
        call = payload.named(call)
        log_user(call, payload.user)
        requests, formatter = _in_form_asked(payload, call, model)
        return with_own(Generation(requests, formatter, ignored=ignored, request_id=call.request_id), own)


def _in_form_asked(payload: CompletionRequest, call: Call, model: ServedModel) -> Written:
    if JSON_LINES in call.headers.get("Accept", ""):
        return _in_lmi_form(payload, model, "jsonlines" if not model.options.dynamic_batching else "dynamic_jsonlines")
    if model.chat_formatters.everywhere:
        return _in_lmi_form(payload, model, model.formatters.stream if payload.stream else model.formatters.whole)
    return _in_openai_form(payload, call, model)


def _in_openai_form(payload: CompletionRequest, call: Call, model: ServedModel) -> Written:
    further: dict[str, Any] = {"logprobs": payload.logprobs or None, "prompt_logprobs": payload.prompt_log_probs}
    if payload.echo and payload.logprobs is not None:
        further |= {"details": True, "decoder_input_details": True, "prompt_logprobs": _num_prompt_top_tokens(payload)}
    answer = CompletionAnswer(
        response_id=f"cmpl-{call.request_id}",
        model=model.name_asked(payload.model),
        fingerprint=model.fingerprint,
        tokenizer=model.backend.tokenizer,
        count=payload.n or 1,
        echo=bool(payload.echo),
        generated=payload.max_tokens != 0,
        log_probs=_num_top_tokens(payload),
        include_usage=payload.include_usage,
        continuous_usage=payload.continuous_usage,
        token_ids_as_text=bool(payload.return_tokens_as_token_ids),
        token_ids=bool(payload.return_token_ids),
        prompt_log_probs=payload.prompt_log_probs,
    )
    formatter = OpenAiCompletionsStreamFormatter if payload.stream else OpenAiCompletionsFormatter
    return _requests(payload, model, further), formatter(answer)


def _num_top_tokens(payload: CompletionRequest) -> int | None:
    """Return the number of tokens to show at each position; named tokens are added to the generated one."""
    return 1 + len(payload.logprob_token_ids) if payload.logprob_token_ids else payload.logprobs


def _num_prompt_top_tokens(payload: CompletionRequest) -> int | None:
    """Return the number of top tokens for the prompt, for both the echo and `prompt_logprobs`."""
    asked = payload.prompt_log_probs
    return asked if asked == ALL_TOKENS else max(payload.logprobs or 0, asked or 0) or asked


def _in_lmi_form(payload: CompletionRequest, model: ServedModel, formatter: str) -> Written:
    """Return requests that are answered in LMI's schema, which has several prompts only with dynamic batching."""
    if len(payload.prompt) > 1 and not model.options.dynamic_batching:
        raise InvalidPayload("`prompt` must be a single prompt for an answer in the LMI schema")
    if payload.max_tokens == 0:
        raise InvalidPayload("`max_tokens` must be at least 1 for an answer in the LMI schema. Given: 0")
    payload.refuse_unshown("return_token_ids", *TRANSFERS)
    further: dict[str, Any] = {"return_full_text": payload.echo or None}
    if payload.logprobs is not None:
        further |= {"details": True, "logprobs": payload.logprobs or None}
    if payload.prompt_log_probs is not None:
        further |= {"details": True, "decoder_input_details": True, "prompt_logprobs": payload.prompt_log_probs}
    return _requests(payload, model, further), model.new_formatter(formatter)


def _requests(payload: CompletionRequest, model: ServedModel, further: dict[str, Any]) -> tuple[GenerationRequest, ...]:
    parameters, names = payload.parameters(model, further, payload.guide())
    if payload.max_tokens == 0:
        parameters["max_new_tokens"] = 1  # backends generate at least one, which the answer leaves out
    fits_context = "max_new_tokens" not in parameters
    parameters.setdefault("max_new_tokens", DEFAULT_MAX_TOKENS)
    names |= {"inputs": "prompt", "return_full_text": "echo"}
    if payload.prompt_logprobs is None:
        names["prompt_logprobs"] = "logprobs"
    add_special_tokens = payload.add_special_tokens is not False
    prompts: list[str | list[int]] = payload.prompt
    if payload.suffix:
        prompts = _around_middles(payload.prompt, payload.suffix, add_special_tokens, model, parameters)
    return tuple(
        GenerationRequest(
            prompt,
            parameters | _limit(payload, model, prompt),
            add_special_tokens=add_special_tokens,
            names=names,
            fits_context=fits_context,
        )
        for prompt in prompts
    )


def _around_middles(
    prefixes: Sequence[str | list[int]],
    suffix: str,
    add_special_tokens: bool,
    model: ServedModel,
    parameters: dict[str, Any],
) -> list[str | list[int]]:
    """Return fill-in-the-middle prompts, and add the tokens that end a middle to `stop_token_ids` in `parameters`."""
    prompts: list[str | list[int]] = []
    stop_token_ids: list[int] = list(parameters.get("stop_token_ids") or ())
    for prefix in prefixes:
        prompt = middle_prompt(model.backend.tokenizer, str(prefix), suffix, add_special_tokens)
        prompts.append(prompt.prompt_ids)
        stop_token_ids += [each for each in prompt.stop_token_ids if each not in stop_token_ids]
    if model.backend.obeys("stop_token_ids"):
        parameters["stop_token_ids"] = stop_token_ids
    return prompts


def _limit(payload: CompletionRequest, model: ServedModel, prompt: str | list[int]) -> dict[str, Any]:
    if payload.thinking_token_budget is None:
        return {}
    return reasoning_limit(payload.thinking_token_budget, model, completion_context(prompt, model.backend.tokenizer))
