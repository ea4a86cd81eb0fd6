"""TensorRT-LLM's response tensors, created from a request's output."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, NamedTuple

import numpy

from lmi_core.generation.output import GenerationStep
from lmi_plugins.trtllm.requests.inference_request import InferenceRequest
from lmi_plugins.trtllm.requests.translation import NO_END

Array = numpy.ndarray[Any, Any]
FLOAT = numpy.dtype("<f4")


class Response(NamedTuple):
    """One response to a request."""

    tensors: Mapping[str, Array]
    is_final: bool


@dataclass(slots=True)
class GeneratedTokens:
    """The tokens of one sequence: all of them, or those of one streamed response."""

    ids: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    logits: bytearray = field(default_factory=bytearray)  # [tokens, vocabulary], where they are asked for


class Answer:
    """The answer to one request: a response for each token of a stream, otherwise one with everything."""

    def __init__(self, request: InferenceRequest, vocabulary: int) -> None:
        self._vocabulary = vocabulary
        self._input_length = request.input_length
        self._streaming = request.streaming
        self._pad_id = int(request.number("pad_id", request.number("end_id", NO_END)))
        self._log_probs = bool(request.number("return_log_probs", False))
        self._generation_logits = bool(request.number("return_generation_logits", False))
        self._sequences = [GeneratedTokens() for _ in range(request.beam_width)]
        self._cumulated = [0.0] * request.beam_width
        self._context_logits: bytes | None = None
        self._unfinished = request.beam_width

    def add(self, step: GenerationStep) -> list[Response]:
        """Add a step; return the responses that can be sent now."""
        if step.prompt_logits is not None:
            self._context_logits = step.prompt_logits
        gained = GeneratedTokens(
            [token.id for token in step.tokens],
            [token.log_prob or 0.0 for token in step.tokens],
            bytearray(step.generation_logits or b""),
        )
        self._unfinished -= step.finish_reason is not None
        finished = self._unfinished == 0
        if self._streaming:
            return self._stream(gained, finished)
        sequence = self._sequences[step.sequence_index]
        sequence.ids += gained.ids
        sequence.log_probs += gained.log_probs
        sequence.logits += gained.logits
        self._cumulated[step.sequence_index] += sum(gained.log_probs)
        return [Response(self._tensors(self._sequences, self._cumulated), True)] if finished else []

    def stop(self) -> Response:
        """Return the last response of a stopped request, with the unsent tokens."""
        nothing = [GeneratedTokens()]
        return Response(self._tensors(nothing if self._streaming else self._sequences, self._cumulated), True)

    def _stream(self, gained: GeneratedTokens, finished: bool) -> list[Response]:
        tokens = list(_one_by_one(gained, self._vocabulary))
        cumulated = accumulate((token.log_probs[0] for token in tokens), initial=self._cumulated[0])
        responses = []
        for count, (token, log_prob) in enumerate(zip(tokens, list(cumulated)[1:], strict=True), start=1):
            self._cumulated = [log_prob]
            responses.append(Response(self._tensors([token], self._cumulated), finished and count == len(tokens)))
        return responses

    def _tensors(self, sequences: list[GeneratedTokens], cumulated: list[float]) -> dict[str, Array]:
        max_length = max(len(sequence.ids) for sequence in sequences)
        ids = [sequence.ids + [self._pad_id] * (max_length - len(sequence.ids)) for sequence in sequences]
        tensors: dict[str, Array] = {
            "output_ids": numpy.array(ids, dtype="int32").reshape(len(sequences), max_length),
            "sequence_length": numpy.array([len(sequence.ids) for sequence in sequences], dtype="int32"),
        }
        if self._log_probs:
            rows = [sequence.log_probs + [0.0] * (max_length - len(sequence.ids)) for sequence in sequences]
            tensors["output_log_probs"] = numpy.array([rows], dtype=FLOAT).reshape(1, len(sequences), max_length)
            tensors["cum_log_probs"] = numpy.array([cumulated], dtype=FLOAT)
        if self._context_logits is not None:
            # They are sent once, without those of a prompt table that precedes the input.
            logits = numpy.frombuffer(self._context_logits or b"", FLOAT).reshape(1, -1, self._vocabulary)
            self._context_logits = None
            tensors["context_logits"] = logits[:, -self._input_length :]
        if self._generation_logits:
            tensors["generation_logits"] = self._logits_of(sequences, max_length)
        return tensors

    def _logits_of(self, sequences: list[GeneratedTokens], max_length: int) -> Array:
        logits = numpy.zeros((1, len(sequences), max_length, self._vocabulary), FLOAT)
        for place, sequence in enumerate(sequences):
            own = numpy.frombuffer(sequence.logits, FLOAT).reshape(-1, self._vocabulary)
            logits[0, place, : len(own)] = own
        return logits


def _one_by_one(tokens: GeneratedTokens, vocabulary: int) -> list[GeneratedTokens]:
    size = vocabulary * FLOAT.itemsize
    return [
        GeneratedTokens([token_id], [log_prob], tokens.logits[place * size : (place + 1) * size])
        for place, (token_id, log_prob) in enumerate(zip(tokens.ids, tokens.log_probs, strict=True))
    ]
