"""The choice of tokens from logits: llama.cpp's samplers, grammars and log probabilities."""

import codecs
import weakref
from ctypes import POINTER, byref, cast
from typing import Any

import llama_cpp
import numpy as np

from llama_cpp_backend.grammars import grammar_of_choices, grammar_of_schema
from llama_cpp_backend.vocabulary import Vocabulary
from lmi import ExtendedParameters, InvalidParameter, Token

Logits = np.ndarray[Any, np.dtype[np.float32]]
CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])  # as llama_token_data has it
BAR = -np.inf  # the logit of a token that must not be generated
PENALIZED = 2**15  # the latest tokens that penalties look at


class Sampler:
    """The choice of one sequence's tokens."""

    def __init__(
        self, vocabulary: Vocabulary, parameters: ExtendedParameters, prompt_ids: list[int], index: int
    ) -> None:
        self._vocabulary, self._parameters = vocabulary, parameters
        self._ids = np.arange(vocabulary.vocabulary_size, dtype=np.int32)
        self._ends = [*vocabulary.end_ids, *(i for i in parameters.stop_token_ids or () if i < len(self._ids))]
        self._bias = self._fixed_bias(parameters)
        self._generated = 0
        self._grammar = _grammar(vocabulary, parameters)
        self._unfinished = b""  # of a character that is only partly generated
        self._chain = llama_cpp.llama_sampler_chain_init(llama_cpp.llama_sampler_chain_default_params())
        for each in _samplers(vocabulary.vocabulary_size, parameters, prompt_ids, index):
            llama_cpp.llama_sampler_chain_add(self._chain, each)
        for each in filter(None, (self._chain, self._grammar)):
            weakref.finalize(self, llama_cpp.llama_sampler_free, each).atexit = False

    def choose(self, logits: Logits) -> int:
        """Return the next token. Raise InvalidParameter if the request excludes all."""
        logits = logits + self._bias if self._bias is not None else logits
        if self._generated < self._parameters.min_length:
            logits = logits.copy()
            logits[self._ends] = BAR
        token_id = self._select(self._ids, logits)
        if self._grammar is not None and not self._allowed(self._ids[[token_id]], logits[[token_id]]).size:
            # The grammar reads the whole vocabulary, which takes long, only where the first choice does not follow it.
            allowed = self._allowed(self._ids, logits)
            if not allowed.size:
                raise InvalidParameter(
                    "no token that the request allows continues the text as its choices or schema demand"
                )
            token_id = self._select(allowed["id"], allowed["logit"])
        if logits[token_id] == BAR:
            raise InvalidParameter("the request's parameters exclude all tokens")
        llama_cpp.llama_sampler_accept(self._chain, token_id)
        if self._grammar is not None:
            llama_cpp.llama_sampler_accept(self._grammar, token_id)
            self._unfinished = self._unfinished_after(token_id) or b""
        self._generated += 1
        return token_id

    def _fixed_bias(self, parameters: ExtendedParameters) -> Logits | None:
        biases = {int(token_id): bias for token_id, bias in (parameters.logit_bias or {}).items()}
        allowed = parameters.allowed_token_ids
        if unknown := [i for i in [*biases, *(allowed or ())] if i >= len(self._ids)]:
            raise InvalidParameter(f"{unknown[0]} is not a token of the model, which has {len(self._ids)}")
        guided = parameters.guided_choice is not None or parameters.guided_json is not None
        if not biases and allowed is None and not guided:
            return None
        bias = np.full(len(self._ids), 0 if allowed is None else BAR, np.float32)
        bias[allowed or []] = 0
        for token_id, value in biases.items():
            bias[token_id] += value
        if guided:  # by a grammar, which takes special tokens for their names
            bias[list(self._vocabulary.special_ids - self._vocabulary.end_ids)] = BAR
        return bias

    def _allowed(self, ids: Any, logits: Logits) -> Any:
        """Return the candidates that the grammar allows. llama.cpp does not check bytes within a character."""
        candidates, _ = _apply(self._grammar, ids, logits)
        candidates = candidates[candidates["logit"] != BAR]
        whole = self._vocabulary.whole_characters[candidates["id"]]
        valid = whole & (not self._unfinished)
        valid[~whole] = [self._unfinished_after(i) is not None for i in candidates["id"][~whole]]
        return candidates[valid]

    def _unfinished_after(self, token_id: int) -> bytes | None:
        """Return the bytes of an unfinished character after this token, or None if they are not UTF-8."""
        decoder = codecs.getincrementaldecoder("utf-8")()
        try:
            decoder.decode(self._unfinished + self._vocabulary.token_bytes(token_id))
        except UnicodeDecodeError:
            return None
        unfinished = decoder.getstate()[0]
        return None if b"\xed\xa0" <= unfinished < b"\xee" else unfinished  # surrogates, which no third byte completes

    def _select(self, ids: Any, logits: Logits) -> int:
        _candidates, array = _apply(self._chain, ids, logits)  # the array points into them
        return int(array.data[array.selected].id)


def _apply(sampler: Any, ids: Any, logits: Logits) -> tuple[Any, Any]:
    """Return the candidates after a sampler, and the structure in which it has put its selection."""
    candidates = np.zeros(len(ids), CANDIDATE)
    candidates["id"], candidates["logit"] = ids, logits
    data = cast(candidates.ctypes.data, POINTER(llama_cpp.llama_token_data))
    array = llama_cpp.llama_token_data_array(data=data, size=len(ids), selected=-1, sorted=False)
    llama_cpp.llama_sampler_apply(sampler, byref(array))
    return candidates, array


def log_probs_of(
    vocabulary: Vocabulary, logits: Logits, token_id: int, count: int
) -> tuple[float, list[Token] | None, int]:
    """Return a token's log probability, the `count` likeliest tokens at its position, and its rank."""
    shifted = logits - logits.max()
    log_probs = shifted - np.log(np.exp(shifted).sum())
    best: list[Token] | None = None
    if count:
        likeliest = np.argpartition(-log_probs, min(count, len(log_probs) - 1))[:count]
        ids = likeliest[np.argsort(-log_probs[likeliest], kind="stable")].tolist()
        best = [Token(i, vocabulary.text(i), float(log_probs[i]), i in vocabulary.special_ids) for i in ids]
    return float(log_probs[token_id]), best, int((logits > logits[token_id]).sum()) + 1


def _samplers(size: int, parameters: ExtendedParameters, prompt_ids: list[int], index: int) -> list[Any]:
    """Return the chain's samplers, in the order of the other engines: penalties, temperature, truncations, choice."""
    repetition = llama_cpp.llama_sampler_init_penalties(size, PENALIZED, parameters.repetition_penalty, 0.0, 0.0)
    if parameters.repetition_penalty != 1:
        for token_id in prompt_ids:
            llama_cpp.llama_sampler_accept(repetition, token_id)
    counts = (parameters.frequency_penalty, parameters.presence_penalty)
    penalties = [repetition, llama_cpp.llama_sampler_init_penalties(size, PENALIZED, 1.0, *counts)]
    if not parameters.do_sample or parameters.temperature == 0:
        return [*penalties, llama_cpp.llama_sampler_init_greedy()]
    seed = llama_cpp.LLAMA_DEFAULT_SEED  # random
    if parameters.seed is not None:
        seed = (parameters.seed + index) % llama_cpp.LLAMA_DEFAULT_SEED
    return [
        *penalties,
        llama_cpp.llama_sampler_init_temp(parameters.temperature),
        llama_cpp.llama_sampler_init_top_k(parameters.top_k),
        llama_cpp.llama_sampler_init_typical(parameters.typical_p, 1),
        llama_cpp.llama_sampler_init_top_p(parameters.top_p, 1),
        llama_cpp.llama_sampler_init_min_p(parameters.min_p, 1),
        llama_cpp.llama_sampler_init_dist(seed),
    ]


def _grammar(vocabulary: Vocabulary, parameters: ExtendedParameters) -> Any:
    """Return the sampler of the request's grammar, or None. Raise InvalidParameter if it cannot be enforced."""
    name = "guided_json" if parameters.guided_choice is None else "guided_choice"
    guide = getattr(parameters, name)
    if guide is None:
        return None
    try:
        text = grammar_of_schema(guide) if name == "guided_json" else grammar_of_choices(guide)
    except ValueError as error:
        raise InvalidParameter(f"`{name}` {error}") from None
    found = llama_cpp.llama_sampler_init_grammar(vocabulary.handle, text.encode(), b"root")
    if not found:
        raise InvalidParameter(f"`{name}` is refused by llama.cpp, whose own log has the reason")
    return found
