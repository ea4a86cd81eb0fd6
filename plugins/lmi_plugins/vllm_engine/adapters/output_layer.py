"""Adapters that change a model's output layer, with which vLLM computes wrong prompt log probs.

It confuses the rows of a prompt with those of the batch's sequences: they get no adapter's change, or that of another
request's (https://github.com/vllm-project/vllm/issues/51594, https://github.com/vllm-project/vllm/issues/16668).
"""

from collections.abc import Collection
from pathlib import Path

import torch
from safetensors import safe_open

from lmi_core.errors import InvalidParameter

OUTPUT_LAYER = "lm_head"  # part of weight names in an adapter, as in vLLM


class OutputLayerAdapters:
    """The adapters of an engine that change the output layer, including unloaded ones that requests may still use."""

    def __init__(self) -> None:
        self._names: list[str] = []

    def add(self, name: str, folder: Path) -> None:
        """Add the adapter if it changes the output layer."""
        if any(OUTPUT_LAYER in weight for weight in weight_names(folder)):
            self._names.append(name)

    def refuse_prompt_log_probs(self) -> None:
        """Raise InvalidParameter for a request with prompt log probs, if these may be wrong."""
        if self._names:
            raise InvalidParameter(
                f"`decoder_input_details` and `prompt_logprobs` cannot be used: the adapter `{self._names[0]}` "
                f"changes the output layer ({OUTPUT_LAYER}), and with such an adapter vLLM computes wrong prompt log "
                "probabilities. Remove these parameters, or serve that adapter from another model directory"
            )


def weight_names(folder: Path) -> Collection[str]:
    """Return the names of an adapter's weights, in the file that vLLM reads."""
    safetensors = folder / "adapter_model.safetensors"
    if safetensors.is_file():
        with safe_open(safetensors, "pt") as weights:
            return list(weights.keys())
    for path in (folder / "adapter_model.bin", folder / "adapter_model.pt"):
        if path.is_file():
            return list(torch.load(path, map_location="meta", weights_only=True))
    return ()
