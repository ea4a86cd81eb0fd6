"""The continuation of a request after the death of vLLM's engine, which accepts prompts and parameters, but no
state.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from lmi_core.errors import GenerationFailed
from lmi_core.generation.output import GenerationStep, Given
from lmi_core.generation.parameters import ExtendedParameters
from lmi_plugins.vllm_engine.library import SamplingParams
from lmi_plugins.vllm_engine.requests.logits_processors import all_extra_arguments
from lmi_plugins.vllm_engine.requests.sampling import structured_outputs

CANNOT = (
    "the request was lost: vLLM's engine died, and the answer cannot continue, because it is sampled without a seed "
    "and depends on more than the previous tokens (a guide, penalties, or a parameter of vLLM's own)"
)


def goes_on(parameters: ExtendedParameters) -> bool:
    """Return whether the tokens so far, as part of the prompt, lead to the same choice of the next token."""
    return not (
        (_is_sampled(parameters) and parameters.seed is not None)
        or parameters.presence_penalty
        or parameters.frequency_penalty
        or parameters.repetition_detection
        or structured_outputs(parameters)
        or all_extra_arguments(parameters)
    )


def repeats(parameters: ExtendedParameters) -> bool:
    """Return whether the request gives the same tokens each time."""
    return parameters.seed is not None or not _is_sampled(parameters)


def shorten(sampling: SamplingParams, given: Given) -> None:
    """Subtract the tokens already given from a sequence's parameters."""
    if given.begun:
        sampling.max_tokens = (sampling.max_tokens or 0) - len(given.token_ids)
        sampling.min_tokens = max(0, sampling.min_tokens - len(given.token_ids))
        sampling.prompt_logprobs = None


async def rest(steps: AsyncGenerator[GenerationStep, None], given: list[Given]) -> AsyncGenerator[GenerationStep, None]:
    """Yield the steps of a repeated request after those already given. Raise GenerationFailed if they differ."""
    left = [each.token_ids.copy() for each in given]
    async with aclosing(steps):
        async for step in steps:
            before, known = given[step.sequence_index], left[step.sequence_index]
            if before.finished:
                continue
            count = min(len(known), len(step.tokens))
            if [token.id for token in step.tokens[:count]] != known[:count]:
                raise GenerationFailed(
                    "the request was lost: vLLM's engine died, and the next one chose other tokens for the same request"
                )
            del known[:count]
            step.tokens = step.tokens[count:]
            if before.begun:
                step.prefill = step.cached_tokens = step.queue_time = None
            if step.tokens or step.finish_reason is not None or step.prefill is not None:
                yield step


def _is_sampled(parameters: ExtendedParameters) -> bool:
    return bool(parameters.do_sample and parameters.temperature)
