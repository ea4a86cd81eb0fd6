"""Engines to compare, each in its own process: a round per line of standard input, with a JSON line as its result.

`python -m tests.benchmarks.contenders NAME MODEL_DIRECTORY`
"""

import asyncio
import itertools
import json
import os
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

REQUESTS = 16
PROMPT_LENGTH = 32
NEW_TOKENS = 64
VOCABULARY = 512  # limit of the smallest model

Prompts = list[list[int]]
Round = Callable[[Prompts], int]  # returns the number of generated tokens


def make_prompts(number: int) -> Prompts:
    """Return the prompts of round `number`, all different, so that no prefix cache holds any of them."""
    return [
        [
            1 + (number * 7919 + place * 104_729 + offset * 15_485_863) % (VOCABULARY - 1)
            for offset in range(PROMPT_LENGTH)
        ]
        for place in range(REQUESTS)
    ]


def torch_engine(directory: str) -> Round:
    """Run the torch engine as the server does: in its worker, with a stream per request."""
    from lmi_plugins.torch_engine.client.client import EngineClient
    from lmi_plugins.torch_engine.messages.requests import EngineOptions, SamplingParameters

    loop = asyncio.new_event_loop()
    client = EngineClient(EngineOptions(directory), retry_threshold=0)
    loop.run_until_complete(client.start())

    async def generate(prompt: list[int]) -> int:
        steps = client.generate(prompt, SamplingParameters(max_new_tokens=NEW_TOKENS))
        return sum([len(step.tokens) async for step in steps])

    async def together(prompts: Prompts) -> int:
        return sum(await asyncio.gather(*map(generate, prompts)))

    return lambda prompts: loop.run_until_complete(together(prompts))


def transformers_model(directory: str) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(directory, dtype="auto")  # in evaluation mode


def transformers_generate(directory: str) -> Round:
    """Run transformers' `generate` on a static batch."""
    import torch

    model = transformers_model(directory)

    def generate(prompts: Prompts) -> int:
        ids = torch.tensor(prompts)
        output = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW_TOKENS, do_sample=False, pad_token_id=0
        )
        return int(output.shape[0] * (output.shape[1] - ids.shape[1]))

    return generate


def transformers_continuous(directory: str, memory: float | None = None) -> Round:
    """Run transformers' continuous batching, whose cache takes the share `memory`, by default nine tenths."""
    import transformers

    model = transformers_model(directory)
    configuration_type: Any = transformers.GenerationConfig  # not typed
    configuration = configuration_type(max_new_tokens=NEW_TOKENS, do_sample=False, pad_token_id=0, eos_token_id=-1)

    batching: Any = import_module("transformers.generation.configuration_utils").ContinuousBatchingConfig
    cache = None if memory is None else batching(max_memory_percent=memory)

    def generate(prompts: Prompts) -> int:
        results = model.generate_batch(prompts, generation_config=configuration, continuous_batching_config=cache)
        return sum(len(result.generated_tokens) for result in results.values())

    return generate


def vllm_eager(directory: str) -> Round:
    """Run vLLM as its server does, in eager mode: in its own processes, with a stream per request."""
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")  # GB
    vllm: Any = import_module("vllm")  # untyped where vLLM is not installed
    output_kind: Any = import_module("vllm.sampling_params").RequestOutputKind
    arguments = vllm.AsyncEngineArgs(
        directory,
        dtype=json.loads((Path(directory) / "config.json").read_text())["dtype"],  # by default bf16 for fp32
        enforce_eager=True,
        max_model_len=1024,
        max_num_seqs=REQUESTS,
        disable_log_stats=True,
    )
    sampling = vllm.SamplingParams(temperature=0, max_tokens=NEW_TOKENS, ignore_eos=True, output_kind=output_kind.DELTA)
    loop = asyncio.new_event_loop()

    async def start() -> Any:
        return vllm.AsyncLLMEngine.from_engine_args(arguments)

    engine = loop.run_until_complete(start())
    numbers = itertools.count()

    async def generate(prompt: list[int]) -> int:
        steps = engine.generate({"prompt_token_ids": prompt}, sampling, str(next(numbers)))
        return sum([len(step.outputs[0].token_ids) async for step in steps])

    async def together(prompts: Prompts) -> int:
        return sum(await asyncio.gather(*map(generate, prompts)))

    return lambda prompts: loop.run_until_complete(together(prompts))


ALONE = "transformers generate_batch"  # the default leaves no memory for others
SMALL_CACHE = "transformers generate_batch, limited to a tenth of the memory"

CONTENDERS: dict[str, Callable[[str], Round]] = {
    "torch engine": torch_engine,
    "transformers generate": transformers_generate,
    SMALL_CACHE: lambda directory: transformers_continuous(directory, 0.1),
    "vLLM, eager": vllm_eager,
    ALONE: transformers_continuous,
}


def main(name: str, directory: str) -> None:
    results = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is not a result
    generate = CONTENDERS[name](directory)
    print(json.dumps({"ready": True}), file=results, flush=True)
    for line in sys.stdin:
        prompts = make_prompts(int(line))
        begun = time.perf_counter()
        tokens = generate(prompts)
        print(json.dumps({"tokens": tokens, "seconds": time.perf_counter() - begun}), file=results, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
