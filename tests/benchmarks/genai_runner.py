"""OpenVINO GenAI for `tests.benchmarks.bench_cpu`: it runs in an environment with that package."""

import sys
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from tests.benchmarks.rounds import MAX_STREAMS, NEW_TOKENS, serve

CACHE_BLOCKS = 512  # of 32 tokens


class Runner:
    """A pipeline with continuous batching."""

    def __init__(self, folder: Path) -> None:
        import openvino
        import openvino_genai

        self._tensor: Any = openvino.Tensor
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.num_kv_blocks, scheduler.max_num_seqs = CACHE_BLOCKS, MAX_STREAMS
        pipeline: Any = openvino_genai.ContinuousBatchingPipeline
        has_bf16 = "BF16" in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
        precision = "bf16" if has_bf16 else "f32"
        self._pipeline = pipeline(str(folder), scheduler, "CPU", {"INFERENCE_PRECISION_HINT": precision})
        self._config = openvino_genai.GenerationConfig(
            max_new_tokens=NEW_TOKENS, ignore_eos=True, eos_token_id=0, stop_token_ids={0}
        )

    def run(self, prompts: list[list[int]]) -> None:
        """Generate greedily for all prompts at once."""
        tensors = [self._tensor(np.array([prompt])) for prompt in prompts]
        results = self._pipeline.generate(tensors, [self._config] * len(prompts))
        assert all(len(each.m_generation_ids[0]) == NEW_TOKENS for each in results)


def save_graph(file: Path, folder: Path) -> None:
    """Have GenAI's reader of GGUF write its graph into the folder, without a tokenizer."""
    import openvino_genai

    copy = folder / "gguf" / file.name
    copy.parent.mkdir()
    copy.hardlink_to(file)
    with suppress(RuntimeError):  # it fails at the tokenizer of made-up words, and has saved the graph by then
        openvino_genai.LLMPipeline(str(copy), "CPU", enable_save_ov_model=True)
    for graph in copy.parent.glob("openvino_model.*"):
        graph.rename(folder / graph.name)
    (folder / "config.json").write_bytes((file.parent / "config.json").read_bytes())


def main(file: Path) -> None:
    with TemporaryDirectory(dir=file.parent) as folder:
        save_graph(file, Path(folder))
        serve(lambda: Runner(Path(folder)).run)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
