"""Prompts' log probs are refused once there is an adapter that changes the output layer."""

from pathlib import Path

import pytest
import torch

from lmi_plugins.vllm_engine.adapters.loaded import changes_output_layer
from tests.plugins.torch_engine.adapters.lora_adapters import save_adapter
from tests.plugins.torch_engine.tiny_models import reference_model
from tests.plugins.vllm_server import HELLO, STORY, VllmServer


@pytest.mark.parametrize("name", ["adapter_model.bin", "adapter_model.pt"])
@pytest.mark.parametrize("module", ["lm_head", "q_proj"])
def test_weights_in_pytorchs_format(tmp_path: Path, name: str, module: str) -> None:
    torch.save({f"base_model.model.{module}.lora_A.weight": torch.zeros(1, 1)}, tmp_path / name)
    assert changes_output_layer(tmp_path) == (module == "lm_head")


@pytest.mark.timeout(300)
@pytest.mark.asyncio(loop_scope="session")
async def test_served(vllm: VllmServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests are refused even after the adapter was unloaded, as requests with it may still run."""
    assert vllm.backend._service is not None
    monkeypatch.setattr(vllm.backend._service.adapters, "_of_output_layer", None)
    folder = save_adapter(tmp_path / "head", reference_model(HELLO), seed=1, targets=("lm_head", "q_proj"))
    assert (await vllm.server.post("/models/hello/adapters", {"name": "head", "src": str(folder)})).status == 200
    answer = await vllm.ask(STORY, max_new_tokens=3)
    for _ in range(2):
        for parameters in (
            {"decoder_input_details": True},
            {"prompt_logprobs": 1},
            {"num_beams": 2, "prompt_logprobs": 1},
        ):
            message = await vllm.refusal(STORY, max_new_tokens=3, details=True, **parameters)
            assert "the adapter `head` changes the output layer (lm_head)" in message
        assert await vllm.ask(STORY, max_new_tokens=3) == answer
        async with vllm.server.client.delete("/models/hello/adapters/head"):
            pass
