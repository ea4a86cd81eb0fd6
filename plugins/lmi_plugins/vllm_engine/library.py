"""Every name that this project uses from vLLM, except where these patch it: `processes`, `cpu_adapters`, `cpu_seeds`,
and `remote.sockets`.

Importing this module imports vLLM, and raises ImportError if that fails.
"""

# mypy: implicit-reexport
# ruff: noqa: F401

import os

from lmi_plugins.vllm_engine.devices import lacks_devices
from lmi_plugins.vllm_engine.processes import SERVER_VARIABLE, is_server, run_core, server_id

os.environ[SERVER_VARIABLE] = server_id()
# By default, vLLM writes each log line a second time, in its own format.
os.environ.setdefault("VLLM_CONFIGURE_LOGGING", "0")
# By default, vLLM forks a process that has threads: those of tokenizers, torch and the event loop's executor.
os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
# vLLM's second model runner, its default on GPUs, refuses the type of logits processors in `logits_processors`.
os.environ.setdefault("VLLM_USE_V2_MODEL_RUNNER", "0")
# On a host without devices, vLLM's client serves cores on other hosts.
if lacks_devices():
    os.environ.setdefault("VLLM_TARGET_DEVICE", "cpu")

from vllm import AsyncEngineArgs, PoolingParams, SamplingParams, __version__
from vllm.config import ModelConfig, VllmConfig
from vllm.exceptions import VLLMClientError
from vllm.inputs.engine import MultiModalInput, TokensInput
from vllm.lora.request import LoRARequest
from vllm.model_executor.model_loader import get_model_cls
from vllm.multimodal.image import ALLOWED_IMAGE_FORMATS, convert_image_mode
from vllm.multimodal.media import ImageMediaIO as ImageReader
from vllm.multimodal.media import MediaWithBytes
from vllm.outputs import CompletionOutput, PoolingRequestOutput, RequestOutput
from vllm.platforms import current_platform
from vllm.sampling_params import RepetitionDetectionParams, RequestOutputKind, StructuredOutputsParams
from vllm.usage.usage_lib import UsageContext
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.core import EngineCoreProc
from vllm.v1.engine.exceptions import EngineDeadError
from vllm.v1.engine.utils import CoreEngineProcManager
from vllm.v1.executor import Executor
from vllm.v1.metrics.loggers import PrometheusStatLogger
from vllm.v1.metrics.stats import RequestStateStats
from vllm.v1.outputs import LogprobsTensors
from vllm.v1.sample.logits_processor import AdapterLogitsProcessor
from vllm.v1.sample.sampler import Sampler

if is_server():
    # vLLM loads its plugins, and so calls `prepare`, only once the core is connected to the server, which waits
    # minutes.
    EngineCoreProc.run_engine_core = staticmethod(run_core)

VERSION: str = __version__
CONTEXT = UsageContext.ENGINE_CONTEXT  # AsyncLLM's default, on which vLLM's defaults of other arguments depend


def token_prompt(ids: list[int], cache_salt: str | None = None) -> TokensInput:
    """Return a prompt in a form that vLLM does not parse again in another thread."""
    prompt = TokensInput(type="token", prompt_token_ids=ids)
    return prompt if cache_salt is None else {**prompt, "cache_salt": cache_salt}


def image_prompt(content: MultiModalInput, ids: list[int], cache_salt: str | None = None) -> MultiModalInput:
    """Return a prompt with the same images and the tokens `ids`, which start with those that vLLM has processed."""
    prompt: MultiModalInput = {**content, "prompt_token_ids": ids}
    return prompt if cache_salt is None else {**prompt, "cache_salt": cache_salt}


def generation_eos_token_ids(config: ModelConfig) -> frozenset[int]:
    """Return the end-of-sequence tokens in the model's generation configuration."""
    found = config.try_get_generation_config().get("eos_token_id")
    return frozenset([found] if isinstance(found, int) else found or ())


def core_process_ids(engine: AsyncLLM) -> list[int]:
    """Return the process ids of the engine's running cores; empty if others, such as Ray, start them."""
    manager = getattr(getattr(engine.engine_core, "resources", None), "engine_manager", None)
    return [process.pid for process in getattr(manager, "processes", ()) if process.is_alive()]


def fail_requests(engine: AsyncLLM) -> None:
    """Raise EngineDeadError in requests that wait for an ended engine, as vLLM's own tasks would."""
    engine.output_processor.propagate_error(EngineDeadError())
    for waiting in tuple(getattr(engine.engine_core, "utility_results", {}).values()):
        if not waiting.done():
            waiting.set_exception(EngineDeadError())


def guide_library(engine: AsyncLLM) -> str:
    """Return the guide library; "auto" if vLLM chooses one for each guide."""
    return str(engine.vllm_config.structured_outputs_config.backend)


def xgrammar_lacks(schema: object) -> bool:
    """Return whether a JSON schema has features that xgrammar ignores, so that vLLM uses another library."""
    from vllm.v1.structured_output.backend_xgrammar import has_xgrammar_unsupported_json_features

    return bool(has_xgrammar_unsupported_json_features(schema))


def traces(engine: AsyncLLM) -> bool:
    """Return whether `otlp_traces_endpoint` makes the engine write spans; otherwise vLLM warns about each trace."""
    return engine.observability_config.otlp_traces_endpoint is not None
