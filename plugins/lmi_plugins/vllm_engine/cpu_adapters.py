"""LoRA in builds of vLLM for CPUs, mended where a batch holds requests with an adapter and requests without."""

from typing import Any

import torch
from vllm.platforms import current_platform


def mend_adapters() -> None:
    if not current_platform.is_cpu():
        return
    from vllm.lora.ops.torch_ops import lora_ops
    from vllm.lora.punica_wrapper import punica_cpu

    shrink = lora_ops.bgmv_shrink
    add_logits = punica_cpu.PunicaWrapperCPU.add_lora_logits

    def bgmv_shrink(
        inputs: torch.Tensor,
        weights: torch.Tensor,
        outputs: torch.Tensor,
        indices: torch.Tensor,
        scaling: float = 1.0,
    ) -> None:
        """The index of no adapter, -1, is the last one's to Python: what a token without one gains is taken back."""
        shrink(inputs, weights, outputs, indices, scaling)
        outputs[(indices < 0).expand(len(outputs))] = 0

    def add_lora_logits(self: Any, logits: torch.Tensor, states: torch.Tensor, *others: Any, **options: Any) -> None:
        """Rows of a prompt have no indices where other requests are in the batch: an error that ends the engine."""
        if len(self.sampler_indices) in (1, len(states)):
            add_logits(self, logits, states, *others, **options)

    lora_ops.bgmv_shrink = punica_cpu.bgmv_shrink = bgmv_shrink
    punica_cpu.PunicaWrapperCPU.add_lora_logits = add_lora_logits
