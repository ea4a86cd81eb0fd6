"""Every architecture has transformers' text: alone, beside others, in parts, found again in a cache, and as beams.

`make sweep` runs all of them, other runs a few.
"""

import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from transformers import (
    AutoModelForImageTextToText,
    BertConfig,
    BertGenerationConfig,
    Blip2Config,
    PaliGemmaConfig,
    PreTrainedConfig,
    Qwen2Config,
    XLMRobertaConfig,
    XLNetConfig,
)

from lmi_core.errors import ConfigurationError
from lmi_core.generation.output import GenerationStep, Token
from lmi_core.serving_runtime import Note
from lmi_plugins.torch_engine.cache import kept_states
from lmi_plugins.torch_engine.messages.requests import CpuRunner, EngineOptions
from lmi_plugins.torch_engine.model.loading import load_model, read_config, text_factory
from lmi_plugins.torch_engine.worker.inspection import inspect_model
from tests.plugins.torch_engine.model.architectures import BY_ROW, FIRST_ID, PAGED, WHOLE, save_architecture
from tests.plugins.torch_engine.test_engine_greedy import make_prompts
from tests.plugins.torch_engine.tiny_models import ids, make_engine, reference_ids, request, run, save_tokenizer, tokens

FEW = (
    "falcon",
    "gemma3n_text",
    "jetmoe",
    "lfm2",
    "llama4",
    "llava",
    "minimax",
    "mpt",
    "openai-gpt",
    "phimoe",
    "qwen2_vl",
    "qwen3_5",
    "rwkv",
    "xglm",
    "zamba",
)
SERVED = [*PAGED, *BY_ROW] if os.environ.get("LMI_SWEEP") else FEW
COUNT = 8


def load_reference(directory: Path, model_type: str) -> Any:
    factory = (
        AutoModelForImageTextToText if model_type in WHOLE else text_factory(read_config(EngineOptions(str(directory))))
    )
    try:
        return factory.from_pretrained(directory, attn_implementation="eager")
    except ValueError:  # has no other attention than its own
        return factory.from_pretrained(directory)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
@pytest.mark.parametrize(
    ("model_type", "cpu_runner"),
    [(each, runner) for each in SERVED for runner in ("torch", "openvino") if runner == "torch" or each in PAGED],
)
def test_text_is_that_of_transformers(
    model_type: str, cpu_runner: CpuRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LMI_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(kept_states, "LEAST_GAIN", 1)
    save_tokenizer(tmp_path)
    save_architecture(tmp_path, model_type)
    told = [*inspect_model(EngineOptions(str(tmp_path)))]
    assert [each for each in told if not isinstance(each, Note) or model_type in PAGED] == []
    reference = load_reference(tmp_path, model_type)
    prompts = [[FIRST_ID + token_id % 300 for token_id in prompt] for prompt in make_prompts([40, 1, 17])]
    expected = [reference_ids(reference, prompt, COUNT) for prompt in prompts]
    requests = [request(str(place), prompt, max_new_tokens=COUNT) for place, prompt in enumerate(prompts)]
    for max_prefill_tokens in (6, 512):
        engine = make_engine(tmp_path, max_prefill_tokens=max_prefill_tokens, cpu_runner=cpu_runner)
        assert engine.runner.paged is (model_type in PAGED)
        results = run(engine, *requests)
        assert [ids(results[each.request_id]) for each in requests] == expected
        found = run(engine, requests[0])["0"]
        assert ids(found) == expected[0]
        assert isinstance(found[0], GenerationStep)
        assert found[0].cached_tokens == (32 if engine.runner.paged else 0)
    several = run(engine, request("n", prompts[2], max_new_tokens=COUNT, num_samples=2))["n"]
    steps = [step for step in several if isinstance(step, GenerationStep)]
    for index in range(2):
        assert [each.id for step in steps if step.sequence_index == index for each in step.tokens] == expected[2]
    check_log_probs(reference, prompts[0], tokens(results["0"]))
    if engine.runner.paged:
        best = run(engine, request("beams", prompts[0], max_new_tokens=COUNT, num_beams=3))["beams"][0]
        assert isinstance(best, GenerationStep)
        assert [token.id for token in best.tokens] == reference_ids(reference, prompts[0], COUNT, num_beams=3)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (XLNetConfig(), "xlnet reads texts in both directions"),
        (PaliGemmaConfig(), "paligemma reads texts in both directions"),
        (BertConfig(architectures=["BertLMHeadModel"]), "bert reads texts in both directions"),
        (BertGenerationConfig(), "bert-generation reads texts in both directions"),
        (Blip2Config(), "blip-2 is for images and texts; the torch engine does not serve its texts, but vLLM may"),
        (
            XLMRobertaConfig(architectures=["XLMRobertaForSequenceClassification"]),
            "XLMRobertaForSequenceClassification scores or classifies texts, which the torch engine does not do",
        ),
        (Qwen2Config(architectures=["Qwen2ForRewardModel"]), "Qwen2ForRewardModel scores or classifies texts"),
    ],
)
def test_what_is_refused(config: PreTrainedConfig, reason: str, tmp_path: Path) -> None:
    save_tokenizer(tmp_path)
    config.save_pretrained(tmp_path)
    save_file({"a": torch.zeros(1)}, tmp_path / "model.safetensors")
    fault, *_ = inspect_model(EngineOptions(str(tmp_path)))
    assert fault.startswith(f"{tmp_path}: {reason}")
    with pytest.raises(ConfigurationError, match=re.escape(reason)):
        load_model(EngineOptions(str(tmp_path)))


def check_log_probs(reference: Any, prompt: list[int], generated: list[Token]) -> None:
    inputs = torch.tensor([prompt])
    output = reference.generate(
        inputs,
        attention_mask=torch.ones_like(inputs),
        max_new_tokens=COUNT,
        do_sample=False,
        output_logits=True,
        return_dict_in_generate=True,
    )
    expected = [logits[0].float().log_softmax(-1).max().item() for logits in output.logits]
    assert [token.log_prob for token in generated] == pytest.approx(expected, abs=1e-4)
