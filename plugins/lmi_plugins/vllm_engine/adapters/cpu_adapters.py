"""LoRA in vLLM's builds for CPUs, fixed for batches of requests with and without adapters.

To be removed once vLLM has mended its two faults, which makes the tests of this file fail:

- A token without an adapter has the index -1, which PyTorch interprets as the last adapter: the token gets its change.
  https://github.com/vllm-project/vllm/pull/48421
- The rows of a prompt whose log probs are requested are combined with the indices of the batch's sequences. Where their
numbers
  differ, an error ends the engine. https://github.com/vllm-project/vllm/issues/16668
  The second fix leaves such rows unchanged, which is right unless an adapter changes the output layer:
  `output_layer` refuses those requests.
"""

from typing import Any

import torch


def mend_adapters() -> None:
    """Patch LoRA in this process, if vLLM is a CPU build."""
    from vllm.platforms import current_platform

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
        """Remove the last adapter's change from tokens without an adapter."""
        shrink(inputs, weights, outputs, indices, scaling)
        outputs[(indices < 0).expand(len(outputs))] = 0

    def add_lora_logits(self: Any, logits: torch.Tensor, states: torch.Tensor, *others: Any, **options: Any) -> None:
        """Leave the rows of a prompt unchanged if there are other requests in the batch."""
        if len(self.sampler_indices) in (1, len(states)):
            add_logits(self, logits, states, *others, **options)

    lora_ops.bgmv_shrink = punica_cpu.bgmv_shrink = bgmv_shrink
    punica_cpu.PunicaWrapperCPU.add_lora_logits = add_lora_logits
