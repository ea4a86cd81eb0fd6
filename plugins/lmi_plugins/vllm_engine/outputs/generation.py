"""Generation steps from vLLM's outputs: tokens with their own texts and log probs, and LMI's finish reasons."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Protocol

from lmi_core.errors import GenerationFailed
from lmi_core.generation.output import FinishReason, GenerationStep, Given, Token
from lmi_core.generation.parameters import ALL_TOKENS, ExtendedParameters
from lmi_core.texts.token_stream import TokenStream
from lmi_core.texts.token_writer import TokenWriter, TopLogProbs
from lmi_plugins.vllm_engine.library import CompletionOutput, RequestOutput


class LogProb(Protocol):
    """The used attributes of vLLM's `Logprob`."""

    logprob: float
    rank: int | None


NOTHING = Given()
LogProbs = Mapping[int, LogProb]  # of a token and the most likely alternatives, by token id


async def steps(
    outputs: AsyncGenerator[RequestOutput, None],
    prompt_ids: list[int],
    parameters: ExtendedParameters,
    writer: TokenWriter,
    sequence_index: int,
    markers: tuple[str, ...] = (),
    given: Given = NOTHING,
) -> AsyncGenerator[GenerationStep, None]:
    """Yield the steps of one sequence, continuing from a previous engine's tokens.

    Closing the generator closes `outputs`; so does a stop sequence, which vLLM does not see.
    """
    sequence = token_stream(writer, prompt_ids, parameters, markers)
    sequence.push_all(given.token_ids)
    sequence.finish()  # send the text held back, in which no stop sequence begins
    allowed = allowed_ids(parameters)
    described = given.begun or sequence_index > 0  # the sequences of a request share its prompt
    async with aclosing(outputs):
        async for output in outputs:
            completion = output.outputs[0]
            if allowed is not None and not allowed.issuperset(completion.token_ids):
                raise GenerationFailed("the request's parameters exclude all tokens that it allows")
            tokens = _new_tokens(completion, sequence, parameters, writer)
            reason = "stop_sequence" if sequence.stopped else finish_reason(completion, parameters)
            if reason is not None:
                tokens += sequence.finish()
            yield GenerationStep(
                tokens,
                reason,
                sequence_index,
                prefill(output, prompt_ids, parameters, writer),
                transfer=transfer(output),
                stop_sequence=sequence.stop_sequence,
                cached_tokens=None if described else output.num_cached_tokens,
                queue_time=None if described else queue_time(output),
            )
            described = True
            if reason is not None:
                return


def _new_tokens(
    completion: CompletionOutput, sequence: TokenStream, parameters: ExtendedParameters, writer: TokenWriter
) -> list[Token]:
    """Return the tokens of an output, up to the end of a stop sequence."""
    if not completion.logprobs:
        return sequence.push_all(completion.token_ids)
    count, named = parameters.num_top_tokens, parameters.logprob_token_ids
    tokens: list[Token] = []
    for token_id, found in zip(completion.token_ids, completion.logprobs, strict=True):
        tokens += sequence.push(token_id, *_log_probs_of(token_id, found, count, named, writer))
        if sequence.stopped:
            break
    return tokens


def token_stream(
    writer: TokenWriter, prompt_ids: list[int], parameters: ExtendedParameters, markers: tuple[str, ...] = ()
) -> TokenStream:
    """Return the writer of one sequence's tokens, in the request's form."""
    return writer.sequence(
        prompt_ids,
        stop_sequences=parameters.stop_sequences or (),
        stop_token_sequences=[[token_id] for token_id in parameters.stop_token_ids or ()],
        include_stop=parameters.include_stop_str_in_output,
        skip_special_tokens=parameters.skip_special_tokens,
        spaces_between_special_tokens=parameters.spaces_between_special_tokens,
        show_end=parameters.ignore_eos_token,
        markers=markers,
    )


def finish_reason(completion: CompletionOutput, parameters: ExtendedParameters) -> FinishReason | None:
    """Convert vLLM's finish reason; None while the sequence continues. Raise GenerationFailed for an unknown one."""
    match completion.finish_reason:
        case None:
            return None
        case "length":
            return "length"
        case "abort":
            return "abort"
        case "stop":
            own = completion.stop_reason in (parameters.stop_token_ids or ())
            return "stop_sequence" if own else "eos_token"
        case "repetition":
            return "stop_sequence"
        case "error":
            raise GenerationFailed(
                "vLLM ended the request with an error, perhaps because its parameters exclude all tokens that its "
                "grammar or schema allows"
            )
    raise GenerationFailed(f"vLLM ended the request with {completion.finish_reason}")


def transfer(output: RequestOutput) -> dict[str, Any] | None:
    """Return the data of the engine's connectors for another engine, by vLLM's names."""
    if output.kv_transfer_params is None and output.ec_transfer_params is None:
        return None
    found = {"kv_transfer_params": output.kv_transfer_params, "ec_transfer_params": output.ec_transfer_params}
    return {name: value for name, value in found.items() if value is not None}


def queue_time(output: RequestOutput) -> float | None:
    """Return how long a request waited in vLLM's scheduler, in seconds; None if unknown."""
    times = output.metrics
    return None if times is None or not times.scheduled_ts else times.scheduled_ts - times.queued_ts


def allowed_ids(parameters: ExtendedParameters) -> frozenset[int] | None:
    """Return all allowed tokens; None means any. vLLM chooses a different one if a request excludes all of them."""
    if parameters.allowed_token_ids is None:
        return None
    budget = parameters.reasoning_budget
    return frozenset([*parameters.allowed_token_ids, *(budget.ends[0] if budget else ())])


def _log_probs_of(
    token_id: int, log_probs: LogProbs, count: int, named: Sequence[int] | None, writer: TokenWriter
) -> tuple[float, list[Token] | None, int | None]:
    if not named:
        return read(token_id, log_probs, count, writer)
    ids = dict.fromkeys((token_id, *named))
    own = log_probs[token_id]
    return own.logprob, writer.top_tokens([(i, log_probs[i].logprob) for i in ids]), own.rank


def read(
    token_id: int, log_probs: LogProbs, count: int, writer: TokenWriter
) -> tuple[float, list[Token] | None, int | None]:
    """Return the log prob of a token, the top tokens at its position, and its rank."""
    top_tokens = writer.top_tokens(_top_log_probs(log_probs, count)) if count else None
    return log_probs[token_id].logprob, top_tokens, log_probs[token_id].rank


def _top_log_probs(log_probs: LogProbs, count: int) -> TopLogProbs:
    ranked = sorted(log_probs.items(), key=lambda item: -item[1].logprob)
    return [(token_id, each.logprob) for token_id, each in (ranked if count == ALL_TOKENS else ranked[:count])]


def prefill(
    output: RequestOutput, prompt_ids: Sequence[int], parameters: ExtendedParameters, writer: TokenWriter
) -> list[Token] | None:
    """Return the prompt's tokens; None if not requested."""
    if not output.prompt_logprobs:
        return None
    count = parameters.num_prompt_top_tokens
    places: list[LogProbs | None] = list(output.prompt_logprobs)
    own = [None if place is None else place[i].logprob for i, place in zip(prompt_ids, places, strict=True)]
    ranks = [None if place is None else place[i].rank for i, place in zip(prompt_ids, places, strict=True)]
    likeliest = [None if place is None or not count else _top_log_probs(place, count) for place in places]
    return writer.prompt(prompt_ids, own, likeliest, ranks)
