"""LoRA in vLLM's builds for CPUs, fixed for batches of requests with and without adapters.

Remove this when the versions in FAULTY are no longer supported. vLLM has two faults in them:

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

from lmi_plugins.vllm_engine.versions import VersionRange, installed_version

FAULTY = VersionRange((0, 32), (0, 33))


def mend_adapters() -> None:
    """Patch LoRA in this process, if vLLM is a CPU build of a faulty version."""
    from vllm.platforms import current_platform

    if not current_platform.is_cpu() or installed_version() not in FAULTY:
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


def takes_no_adapter_for_the_last() -> bool:
    """Return whether the vLLM of this process changes tokens without an adapter."""
    try:
        from vllm.lora.ops.torch_ops import lora_ops
    except ImportError:
        return False  # the adapter in its place may be valid
    outputs = torch.zeros(1, 1)
    lora_ops.bgmv_shrink(torch.ones(1, 1), torch.ones(1, 1, 1), outputs, torch.tensor([-1]))
    return bool(outputs.any())


def check_adapters() -> str | None:
    """Return why adapters are unsupported, if so: vLLM has the first fault in an unpatched build."""
    from vllm.platforms import current_platform

    version = installed_version()
    if not current_platform.is_cpu() or version in FAULTY or not takes_no_adapter_for_the_last():
        return None
    return (
        f"vLLM {version} for CPUs lets adapters change the answers of other requests in the batch "
        f"(https://github.com/vllm-project/vllm/pull/48421); the workaround is only for {FAULTY}"
    )
