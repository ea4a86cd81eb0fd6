"""Generation steps, created from the responses to requests for text."""

from collections.abc import AsyncGenerator, Collection, Iterable, Iterator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from lmi_core.errors import RequestAborted
from lmi_core.generation.output import FinishReason, GenerationStep, Token
from lmi_core.generation.request import ValidRequest
from lmi_core.generation.tensors import Tensor
from lmi_core.texts.token_writer import TokenWriter, TopLogProbs
from lmi_plugins.trtllm.parameters import TrtllmParameters
from lmi_plugins.trtllm.requests.tensor_table import TOP_IDS, TOP_LOG_PROBS

if TYPE_CHECKING:
    import numpy

Response = Mapping[str, Tensor]


class WrittenSequence:
    """One sequence of a request, as text."""

    def __init__(self, request: ValidRequest, writer: TokenWriter, eos_token_ids: Collection[int], index: int) -> None:
        parameters = request.parameters
        assert isinstance(parameters, TrtllmParameters), parameters
        self.finished = False
        self._stream = writer.sequence(
            request.prompt_ids,
            stop_sequences=parameters.stop_sequences or (),
            stop_token_sequences=[[token_id] for token_id in parameters.stop_token_ids or ()],
            show_end=not eos_token_ids,
            markers=request.markers,
        )
        self._writer = writer
        self._eos_token_ids = eos_token_ids
        self._room = parameters.max_new_tokens
        self._index = index

    def step(
        self, ids: list[int], log_probs: Iterable[float | None], top: Iterable[TopLogProbs | None]
    ) -> GenerationStep:
        tokens: list[Token] = []
        reason: FinishReason | None = None
        for token_id, log_prob, top_log_probs in zip(ids, log_probs, top, strict=True):
            tokens += self._stream.push(token_id, log_prob, self._writer.top_tokens(top_log_probs))
            self._room -= 1
            reason = self._finish_reason(token_id)
            if reason is not None:
                return self._end(tokens, reason)
        return GenerationStep(tokens, None, self._index)

    def abort(self) -> GenerationStep:
        return self._end([], "abort")

    def _finish_reason(self, token_id: int) -> FinishReason | None:
        if token_id in self._eos_token_ids:
            return "eos_token"
        if self._stream.stopped:
            return "stop_sequence"
        return None if self._room else "length"

    def _end(self, tokens: list[Token], reason: FinishReason) -> GenerationStep:
        self.finished = True
        stop = self._stream.stop_sequence
        return GenerationStep(tokens + self._stream.finish(), reason, self._index, stop_sequence=stop)


async def generation_steps(
    responses: AsyncGenerator[Response, None],
    request: ValidRequest,
    writer: TokenWriter,
    eos_token_ids: Collection[int],
    index: int = 0,
) -> AsyncGenerator[GenerationStep, None]:
    """Yield the steps of a request's sequence `index`, or of its beams.

    Their end closes `responses`. Stop sequences are matched here, not by the manager.
    """
    parameters = request.parameters
    assert isinstance(parameters, TrtllmParameters), parameters
    ends = frozenset[int]() if parameters.ignore_eos_token else frozenset(eos_token_ids)
    sequences = [WrittenSequence(request, writer, ends, index + beam) for beam in range(parameters.num_beams)]
    try:
        async with aclosing(responses):
            async for response in responses:
                prefill = _prefill(response, request, writer)
                for sequence, row in zip(sequences, _rows(response), strict=True):
                    step = sequence.step(*row)
                    step.prefill, prefill = prefill, None
                    yield step
                if all(sequence.finished for sequence in sequences):
                    return
    except RequestAborted:
        for sequence in sequences:
            yield sequence.abort()


def _rows(response: Response) -> Iterator[tuple[list[int], list[float | None], list[TopLogProbs | None]]]:
    """Yield the ids, log probs and most likely tokens of each sequence."""
    ids = response["output_ids"].array()
    log_probs = response["output_log_probs"].array()[0] if "output_log_probs" in response else None
    for row, length in enumerate(response["sequence_length"].array().tolist()):
        own: list[float | None] = [None] * length if log_probs is None else log_probs[row, :length].tolist()
        yield ids[row, :length].tolist(), own, _top(response, row, length)


def _top(response: Response, row: int, length: int) -> list[TopLogProbs | None]:
    """Return the most likely tokens at each position of a sequence; None if not requested."""
    if TOP_IDS not in response:
        return [None] * length
    ids, log_probs = (response[name].array()[row, :length].tolist() for name in (TOP_IDS, TOP_LOG_PROBS))
    return [list(zip(*each, strict=True)) for each in zip(ids, log_probs, strict=True)]


def _prefill(response: Response, request: ValidRequest, writer: TokenWriter) -> list[Token] | None:
    """Return the prompt's tokens, if the response has its logits."""
    if "context_logits" not in response:
        return None
    ids = request.prompt_ids
    log_probs = _log_probs(response["context_logits"].array()[0, :-1], ids[1:])
    return writer.prompt(ids, [None, *log_probs], [None] * len(ids))


def _log_probs(logits: "numpy.ndarray[Any, Any]", ids: list[int]) -> list[float]:
    """Return the log prob of each token by the logits of its position, [tokens, vocabulary]."""
    import numpy

    shifted = logits - logits.max(-1, keepdims=True)
    chosen = shifted[numpy.arange(len(ids)), ids]
    log_probs: list[float] = (chosen - numpy.log(numpy.exp(shifted).sum(-1))).tolist()
    return log_probs
