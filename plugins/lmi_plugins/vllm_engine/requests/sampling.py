"""Translation of LMI's generation parameters into vLLM's."""

from typing import Any

import orjson

from lmi_core.generation.parameters import ExtendedParameters
from lmi_core.parsing.reasoning.guide import after_reasoning
from lmi_plugins.torch_engine.messages.requests import Guide, guide_of
from lmi_plugins.vllm_engine.library import (
    RepetitionDetectionParams,
    RequestOutputKind,
    SamplingParams,
    StructuredOutputsParams,
)
from lmi_plugins.vllm_engine.requests.logits_processors import all_extra_arguments
from lmi_plugins.vllm_engine.requests.verification import GuidedSamplingParams

TAG_HEAD = '{"type":"structural_tag","format":'  # the start of a tag's text as written by `read_structural_tag`


def sampling_params(parameters: ExtendedParameters, sequence_index: int, log_probs: bool) -> SamplingParams:
    """Return vLLM's parameters for one sequence, without stop sequences: `outputs.generation` searches for these."""
    guide = structured_outputs(parameters)
    kind = SamplingParams if guide is None else GuidedSamplingParams
    asked = parameters.repetition_detection
    return kind(
        temperature=parameters.temperature if parameters.do_sample else 0.0,
        top_k=max(parameters.top_k, 0),
        top_p=parameters.top_p,
        min_p=parameters.min_p,
        seed=None if parameters.seed is None else (parameters.seed + sequence_index) % 2**63,
        repetition_penalty=parameters.repetition_penalty,
        presence_penalty=parameters.presence_penalty,
        frequency_penalty=parameters.frequency_penalty,
        logit_bias={int(token_id): bias for token_id, bias in (parameters.logit_bias or {}).items()} or None,
        allowed_token_ids=parameters.allowed_token_ids,
        stop_token_ids=parameters.stop_token_ids,
        ignore_eos=parameters.ignore_eos_token,
        max_tokens=parameters.max_new_tokens,
        min_tokens=min(parameters.min_length, parameters.max_new_tokens),
        logprobs=parameters.num_top_tokens if log_probs and not parameters.logprob_token_ids else None,
        logprob_token_ids=parameters.logprob_token_ids if log_probs else None,
        prompt_logprobs=parameters.num_prompt_top_tokens if parameters.wants_prefill and not sequence_index else None,
        structured_outputs=guide,
        extra_args=all_extra_arguments(parameters),
        repetition_detection=None if asked is None else RepetitionDetectionParams(**asked.model_dump()),
        detokenize=False,
        output_kind=RequestOutputKind.DELTA,
        skip_clone=True,
    )


def structured_outputs(parameters: ExtendedParameters) -> StructuredOutputsParams | None:
    """Return the grammar, schema or other guide that the text must follow, None without one."""
    guide = vllm_guide(parameters)
    return None if guide is None else StructuredOutputsParams(**{guide.kind: guide.content})


def vllm_guide(parameters: ExtendedParameters) -> Guide | None:
    """Return the guide for vLLM, which is a structural tag if a text may precede it."""
    guide = guide_of(parameters)
    if guide is None or guide.reasoning is None:
        return guide
    tag = after_reasoning(guide.reasoning, _as_format(guide.kind, guide.content))
    return Guide("structural_tag", orjson.dumps(tag).decode())


def _as_format(kind: str, guide: Any) -> Any:
    """Return a guide in the form of xgrammar's structural tags; schemas and tags are already text, and may be long."""
    match kind:
        case "json":
            return {"type": "json_schema", "json_schema": orjson.Fragment(guide)}
        case "regex":
            return {"type": "regex", "pattern": guide}
        case "grammar":
            return {"type": "grammar", "grammar": guide}
        case "structural_tag":
            assert guide.startswith(TAG_HEAD), guide[:100]
            return orjson.Fragment(guide[len(TAG_HEAD) : -1])
    return {"type": "or", "elements": [{"type": "const_string", "value": text} for text in guide]}
