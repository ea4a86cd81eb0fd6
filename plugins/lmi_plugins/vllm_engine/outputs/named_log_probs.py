"""A fix for log probs of named tokens in a batch with requests for the most likely tokens.

vLLM's sampler gathers either the named tokens or the most likely ones, for all rows of a batch:
https://github.com/vllm-project/vllm/blob/main/vllm/v1/sample/sampler.py
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

from lmi_plugins.vllm_engine.library import AdapterLogitsProcessor, LogprobsTensors, Sampler, SamplingParams, VllmConfig


class NamedLogProbs(AdapterLogitsProcessor):
    """A logits processor that changes nothing: vLLM creates it in the sampling process, whose sampler must be
    patched.
    """

    def __init__(self, vllm_config: VllmConfig, device: torch.device, is_pin_memory: bool) -> None:
        super().__init__(vllm_config, device, is_pin_memory)
        mend_sampler(vllm_config.model_config.max_logprobs)

    def is_argmax_invariant(self) -> bool:
        return True

    def new_req_logits_processor(self, params: SamplingParams) -> Callable[..., torch.Tensor] | None:
        return None


def mend_sampler(most: int) -> None:
    """Keep the most likely tokens of rows that name no tokens; vLLM drops them if another row names some.

    `most` is the maximum that a request may ask for; -1 means all.
    """
    gather = Sampler.gather_specific_token_logprobs
    gather = getattr(gather, "__wrapped__", gather)

    @wraps(gather)
    def gather_all(
        self: Any, log_probs: torch.Tensor, named: dict[int, list[int]], sampled: torch.Tensor
    ) -> LogprobsTensors | None:
        found = gather(self, log_probs, named, sampled)
        others = [row for row in range(len(log_probs)) if row not in named]
        return found if found is None or not others else with_likeliest(found, log_probs, others, most)

    Sampler.gather_specific_token_logprobs = gather_all


def with_likeliest(found: LogprobsTensors, log_probs: torch.Tensor, others: list[int], most: int) -> LogprobsTensors:
    """Put the most likely tokens into these rows, after the sampled one. log_probs: [rows, vocabulary]."""
    vocabulary = log_probs.shape[1]
    count = vocabulary if most < 0 else min(most, vocabulary)
    ids, values = found.logprob_token_ids, found.logprobs  # [rows, 1 + tokens]; extra columns are never read
    missing = max(0, 1 + count - ids.shape[1])
    ids = torch.nn.functional.pad(ids, (0, missing))
    values = torch.nn.functional.pad(values, (0, missing), value=-torch.inf)
    rows = torch.tensor(others, device=log_probs.device)
    best = log_probs[rows].topk(count)
    ids[rows, 1 : count + 1] = best.indices.to(ids.dtype)
    values[rows, 1 : count + 1] = best.values
    return found._replace(logprob_token_ids=ids, logprobs=values)
