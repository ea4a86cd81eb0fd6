"""Translation of TensorRT-LLM's requests to the torch engine's."""

from typing import TYPE_CHECKING, Literal

from lmi_core.generation.tensors import Tensor
from lmi_plugins.torch_engine.messages.requests import (
    EngineRequest,
    ParameterNames,
    SamplingParameters,
    TensorData,
    TensorType,
)

if TYPE_CHECKING:
    from lmi_plugins.trtllm.requests.inference_request import InferenceRequest  # imports numpy

NO_END = -1
TENSOR_TYPES: dict[str, TensorType] = {"FP32": "float32", "FP16": "float16", "BF16": "bfloat16"}
TENSOR_NAMES = ParameterNames(num_beams="`beam_width`", draft_ids="`draft_input_ids`")
# Any other value: stop only when no better result is possible
EARLY_STOPPING: dict[int, bool | Literal["never"]] = {0: False, 1: True}


def engine_request(request: "InferenceRequest", adapter: str | None) -> EngineRequest:
    """Return the engine's request, with the name of its adapter."""
    logits, table = request.tensors.get("draft_logits"), request.tensors.get("prompt_embedding_table")
    return EngineRequest(
        request_id=str(request.request_id),
        prompt_ids=request.ids("input_ids").tolist(),
        parameters=_parameters(request),
        adapter=adapter,
        soft_prompt=None if table is None else tensor_data(table, list(table.shape[-2:])),
        draft_ids=request.ids("draft_input_ids").tolist(),
        draft_logits=None if logits is None else tensor_data(logits, list(logits.shape)),
    )


def tensor_data(tensor: Tensor, shape: list[int]) -> TensorData:
    return TensorData(TENSOR_TYPES[tensor.dtype], shape, tensor.data)


def _parameters(request: "InferenceRequest") -> SamplingParameters:
    number, bias = request.number, request.tensors.get("embedding_bias")
    bad_words = request.words.get("bad_words_list", [])
    top_p = number("runtime_top_p", 0)
    samples = request.number("runtime_top_k", 0) > 0 or request.number("runtime_top_p", 0) > 0
    end_id = int(number("end_id", NO_END))
    return SamplingParameters(
        temperature=request.number("temperature", 1) if samples and request.beam_width == 1 else 0.0,  # 0: greedy
        top_k=int(number("runtime_top_k", 0)),
        top_p=top_p or 1.0,
        repetition_penalty=number("repetition_penalty", 1),
        seed=int(number("random_seed", 0)),
        max_new_tokens=request.output_length,
        prompt_logits=bool(number("return_context_logits", False)),
        generation_logits=bool(number("return_generation_logits", False)),
        presence_penalty=number("presence_penalty", 0),
        frequency_penalty=number("frequency_penalty", 0),
        penalize_prompt=True,
        no_repeat_ngram_size=int(number("no_repeat_ngram_size", 0)),
        embedding_bias=None if bias is None else bias.data,
        bad_sequences=bad_words,
        bad_texts=request.bad_texts,
        min_length=int(number("min_length", 0)),
        # The engine ignores an end-of-sequence token among the bad words; treated as an ordinary token, it never
        # occurs.
        eos_token_ids=[] if end_id == NO_END or [end_id] in bad_words else [end_id],
        stop_token_sequences=request.words.get("stop_words_list", []),
        include_stop=True,
        num_beams=request.beam_width,
        length_penalty=number("len_penalty", 0),
        early_stopping=EARLY_STOPPING.get(int(number("early_stopping", 0)), "never"),
    )
