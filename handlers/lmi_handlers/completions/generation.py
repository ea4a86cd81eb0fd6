"""Conversion of a completion request, in OpenAI's or LMI's dialect, into generation requests."""

from collections.abc import Callable, Sequence
from typing import Any

from lmi_core.errors import InvalidPayload
from lmi_core.formatter import OutputFormatter
from lmi_core.generation.parameters import ALL_TOKENS
from lmi_core.generation.request import GenerationRequest
from lmi_core.handler import Call, Generation
from lmi_core.served_model import ServedModel
from lmi_core.texts.fill_in_the_middle import middle_prompt
from lmi_handlers.chat.reasoning import completion_context, reasoning_limit
from lmi_handlers.completions.formatters import CompletionAnswer
from lmi_handlers.completions.request import DEFAULT_MAX_TOKENS, CompletionRequest
from lmi_handlers.fields.passed import TRANSFERS

CompletionForm = Callable[[CompletionAnswer], OutputFormatter]


def completion_generation(
    payload: CompletionRequest, call: Call, model: ServedModel, form: CompletionForm
) -> Generation:
    """Return the generation of a completion that is written in OpenAI's form. Raise InvalidPayload if it is invalid."""
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
        # Unless it is among them, the generated token is added to the named ones.
        log_probs=1 + len(payload.logprob_token_ids) if payload.logprob_token_ids else payload.logprobs,
        include_usage=payload.include_usage,
        continuous_usage=payload.continuous_usage,
        token_ids_as_text=bool(payload.return_tokens_as_token_ids),
        token_ids=bool(payload.return_token_ids),
        prompt_log_probs=payload.prompt_log_probs,
    )
    return Generation(completion_requests(payload, model, further), form(answer))


def _num_prompt_top_tokens(payload: CompletionRequest) -> int | None:
    """Return the number of top tokens for the prompt, for both the echo and `prompt_logprobs`."""
    asked = payload.prompt_log_probs
    return asked if asked == ALL_TOKENS else max(payload.logprobs or 0, asked or 0) or asked


def plain_completion(payload: CompletionRequest, model: ServedModel, formatter: str) -> Generation:
    """Return a generation that is answered in LMI's schema, which has several prompts only with dynamic batching."""
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
    return Generation(completion_requests(payload, model, further), model.new_formatter(formatter))


def completion_requests(
    payload: CompletionRequest, model: ServedModel, further: dict[str, Any]
) -> tuple[GenerationRequest, ...]:
    """Return a generation request for each prompt, with the parameters in `further` too."""
    parameters, names = payload.parameters(model, further, payload.guide())
    if payload.max_tokens == 0:
        parameters["max_new_tokens"] = 1  # backends generate at least one token; the answer omits it
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
