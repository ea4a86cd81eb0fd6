"""Requests for text as tensors: one request for each sequence, or for all beams."""

import random
from collections.abc import Sequence

from lmi_core.generation.parameters import seed_of
from lmi_core.generation.request import ValidRequest
from lmi_core.generation.tensors import Tensor
from lmi_plugins.trtllm.parameters import TrtllmParameters
from lmi_plugins.trtllm.requests.tensor_table import ANY, BY_NAME
from lmi_plugins.trtllm.requests.translation import NO_END
from lmi_plugins.trtllm.requests.word_lists import write_words


def request_tensors(request: ValidRequest, eos_token_ids: Sequence[int], index: int = 0) -> dict[str, Tensor]:
    """Return the tensors of a request's sequence `index`, without bad texts and biases.

    TensorRT-LLM has one end token; the model's others become stop words. The first sequence has the prompt's logits.
    """
    parameters = request.parameters
    assert isinstance(parameters, TrtllmParameters), parameters
    ends = [] if parameters.ignore_eos_token else list(eos_token_ids)
    samples = parameters.samples
    numbers: dict[str, float] = {
        "streaming": parameters.num_beams == 1,
        "beam_width": parameters.num_beams,
        "temperature": parameters.temperature if samples else 1.0,
        "runtime_top_k": max(parameters.top_k, 0) if samples else 0,
        "runtime_top_p": parameters.top_p if samples else 0.0,
        "repetition_penalty": parameters.repetition_penalty,
        "presence_penalty": parameters.presence_penalty,
        "frequency_penalty": parameters.frequency_penalty,
        "no_repeat_ngram_size": parameters.no_repeat_ngram_size,
        "len_penalty": parameters.length_penalty,
        "min_length": parameters.min_length,
        "random_seed": random.getrandbits(63) if parameters.seed is None else seed_of(parameters.seed, index),
        "end_id": ends[0] if ends else NO_END,
        "return_log_probs": request.log_probs,
        "return_context_logits": parameters.wants_prefill and index == 0,
    }
    tensors = {name: _tensor(name, [number]) for name, number in numbers.items()}
    stop_ids = [*ends[1:], *(parameters.stop_token_ids or ())]
    return {
        "input_ids": _tensor("input_ids", request.prompt_ids),
        "request_output_len": _tensor("request_output_len", [parameters.max_new_tokens]),
        **tensors,
        **({"stop_words_list": write_words([[token_id] for token_id in stop_ids])} if stop_ids else {}),
    }


def _tensor(name: str, numbers: Sequence[float]) -> Tensor:
    specification = BY_NAME[name]
    shape = tuple(len(numbers) if size == ANY else size for size in specification.shape)
    return Tensor.of(specification.dtype, shape, numbers)
