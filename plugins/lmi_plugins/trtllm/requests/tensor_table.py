"""The tensors of TensorRT-LLM's `InferenceRequest` and of its responses: names, types and shapes."""

from collections.abc import Mapping

from lmi_core.generation.tensors import TensorSpecification, TensorType

ANY = -1

INPUTS = (
    TensorSpecification("request_output_len", "INT32", (1, 1)),
    TensorSpecification("input_ids", "INT32", (1, ANY)),
    TensorSpecification("streaming", "BOOL", (1,), optional=True),
    TensorSpecification("beam_width", "INT32", (1,), optional=True),
    TensorSpecification("temperature", "FP32", (1,), optional=True),
    TensorSpecification("runtime_top_k", "INT32", (1,), optional=True),
    TensorSpecification("runtime_top_p", "FP32", (1,), optional=True),
    TensorSpecification("len_penalty", "FP32", (1,), optional=True),
    TensorSpecification("early_stopping", "INT32", (1,), optional=True),
    TensorSpecification("repetition_penalty", "FP32", (1,), optional=True),
    TensorSpecification("min_length", "INT32", (1,), optional=True),
    TensorSpecification("presence_penalty", "FP32", (1,), optional=True),
    TensorSpecification("frequency_penalty", "FP32", (1,), optional=True),
    TensorSpecification("no_repeat_ngram_size", "INT32", (1,), optional=True),
    TensorSpecification("random_seed", "UINT64", (1,), optional=True),
    TensorSpecification("end_id", "INT32", (1,), optional=True),
    TensorSpecification("pad_id", "INT32", (1,), optional=True),
    TensorSpecification("embedding_bias", "FP32", (1, ANY), optional=True),
    TensorSpecification("bad_words_list", "INT32", (1, 2, ANY), optional=True),
    TensorSpecification("stop_words_list", "INT32", (1, 2, ANY), optional=True),
    # NVIDIA's table says [1], which cannot contain an embedding; its runtime takes rows of the model's hidden size.
    TensorSpecification("prompt_embedding_table", "FP16", (ANY, ANY), optional=True),
    TensorSpecification("prompt_vocab_size", "INT32", (1,), optional=True),
    TensorSpecification("lora_task_id", "UINT64", (1,), optional=True),
    TensorSpecification("lora_weights", "FP32", (ANY, ANY), optional=True),
    TensorSpecification("lora_config", "INT32", (ANY, 3), optional=True),
    TensorSpecification("return_log_probs", "BOOL", (1,), optional=True),
    TensorSpecification("return_context_logits", "BOOL", (1,), optional=True),
    TensorSpecification("return_generation_logits", "BOOL", (1,), optional=True),
    TensorSpecification("draft_input_ids", "INT32", (ANY,), optional=True),
    TensorSpecification("draft_logits", "FP32", (ANY, ANY), optional=True),
)
OUTPUTS = (
    TensorSpecification("output_ids", "INT32", (ANY, ANY)),
    TensorSpecification("sequence_length", "INT32", (ANY,)),
    TensorSpecification("output_log_probs", "FP32", (1, ANY, ANY), optional=True),
    TensorSpecification("cum_log_probs", "FP32", (1, ANY), optional=True),
    TensorSpecification("context_logits", "FP32", (1, ANY, ANY), optional=True),
    TensorSpecification("generation_logits", "FP32", (1, ANY, ANY, ANY), optional=True),
)

BY_NAME: Mapping[str, TensorSpecification] = {each.name: each for each in INPUTS}
MANDATORY = tuple(each.name for each in INPUTS if not each.optional)
# Types accepted in addition to the one above; for weights, the table has the model's data type.
FURTHER_TYPES: Mapping[str, tuple[TensorType, ...]] = {"lora_weights": ("FP16", "BF16")}
# NVIDIA's own tools add a batch dimension.
FURTHER_SHAPES: Mapping[str, tuple[tuple[int, ...], ...]] = {"prompt_embedding_table": ((1, ANY, ANY),)}


def types_of(name: str) -> tuple[TensorType, ...]:
    return (BY_NAME[name].dtype, *FURTHER_TYPES.get(name, ()))


def shapes_of(name: str) -> tuple[tuple[int, ...], ...]:
    return (BY_NAME[name].shape, *FURTHER_SHAPES.get(name, ()))


def shape_in_words(shape: tuple[int, ...]) -> str:
    """Return a shape in the form used in messages, such as `[1, 2, any]`."""
    return f"[{', '.join('any' if size == ANY else str(size) for size in shape)}]"


def fits(shape: tuple[int, ...], expected: tuple[int, ...]) -> bool:
    return len(shape) == len(expected) and all(
        wanted in (ANY, size) for size, wanted in zip(shape, expected, strict=True)
    )
