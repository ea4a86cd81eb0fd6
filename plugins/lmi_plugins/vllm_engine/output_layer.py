"""Adapters that change a model's output layer, beside which vLLM computes wrong log probs of prompts.

It takes the rows of a prompt for those of the batch's sequences: they get no adapter's change, or that of another
request's (https://github.com/vllm-project/vllm/issues/51594, https://github.com/vllm-project/vllm/issues/16668).
"""

from collections.abc import Collection
from pathlib import Path

import torch
from safetensors import safe_open

from lmi_core.errors import InvalidParameter

OUTPUT_LAYER = "lm_head"  # in the names of an adapter's weights, as vLLM looks for it


class OutputLayerAdapters:
    """Those that an engine was given. One that is unloaded still counts: requests with it may be running."""

    def __init__(self) -> None:
        self._names: list[str] = []

    def add(self, name: str, folder: Path) -> None:
        """Remember the adapter if it changes the output layer."""
        if any(OUTPUT_LAYER in weight for weight in weight_names(folder)):
            self._names.append(name)

    def refuse_prompt_log_probs(self) -> None:
        """Raise InvalidParameter for a request that wants them, if they may be wrong."""
        if self._names:
            raise InvalidParameter(
                "`decoder_input_details` and `prompt_logprobs` cannot be given: the adapter"
                f" `{self._names[0]}` changes the output layer ({OUTPUT_LAYER}), and beside such an adapter vLLM gets"
                " the log probs of prompts wrong. Leave them out, or serve that adapter from another model directory"
            )


def weight_names(folder: Path) -> Collection[str]:
    """Return the names of an adapter's weights, in the file that vLLM reads of those there are."""
    safetensors = folder / "adapter_model.safetensors"
    if safetensors.is_file():
        with safe_open(safetensors, "pt") as weights:
            return list(weights.keys())
    for path in (folder / "adapter_model.bin", folder / "adapter_model.pt"):
        if path.is_file():
            return list(torch.load(path, map_location="meta", weights_only=True))
    return ()
