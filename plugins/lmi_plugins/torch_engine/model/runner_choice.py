"""The choice of the runner that computes a model's steps."""

import logging

from transformers import PreTrainedModel

from lmi_plugins.torch_engine.cache.block_pool import BLOCK_SIZE
from lmi_plugins.torch_engine.messages.openvino_limits import reason_for_torch
from lmi_plugins.torch_engine.messages.requests import EngineOptions
from lmi_plugins.torch_engine.model.attention import UnsupportedAttention
from lmi_plugins.torch_engine.model.decode_graphs import Capture, CudaCapture
from lmi_plugins.torch_engine.model.model_runner import ModelRunner, UnsupportedGraph
from lmi_plugins.torch_engine.model.paged_runner import PagedRunner
from lmi_plugins.torch_engine.model.row_runner import RowRunner
from lmi_plugins.torch_engine.model.threads import FEW_PARAMETERS

logger = logging.getLogger(__name__)


def choose_runner(model: PreTrainedModel, max_length: int, options: EngineOptions) -> ModelRunner:
    """Return the fastest runner that supports the model."""
    try:
        return choose_paged_runner(model, max_length, options)
    except UnsupportedAttention as reason:
        logger.warning("%s", slower_path(model, reason))
        return RowRunner(model, max_length)


def slower_path(model: PreTrainedModel, reason: UnsupportedAttention) -> str:
    """Return a sentence about a model that cannot run with a paged cache."""
    return f"{type(model).__name__} runs each sequence separately, which is slower with many: {reason}"


def choose_paged_runner(
    model: PreTrainedModel, max_length: int, options: EngineOptions, block_size: int | None = None
) -> PagedRunner:
    """Return the fastest runner with a paged cache, of that block size if given.

    Raise UnsupportedAttention if there is none.
    """
    name = type(model).__name__
    asked = options.cpu_runner == "openvino" or options.quantize is not None
    try:
        runner = _openvino_runner(model, max_length, options, block_size, asked)
    except UnsupportedGraph as reason:
        if asked or model.device.type == "cpu":
            logger.log(logging.WARNING if asked else logging.INFO, "PyTorch computes %s: %s", name, reason)
        return PagedRunner(model, max_length, block_size or BLOCK_SIZE, capture_for(model, options))
    logger.info("OpenVINO computes %s in %s; weights: %s", name, runner.dtype, options.quantize or "as they are")
    return runner


def capture_for(model: PreTrainedModel, options: EngineOptions) -> Capture | None:
    """Return the capture of decode steps on the model's device, if enabled."""
    return CudaCapture(model.device) if model.device.type == "cuda" and not options.enforce_eager else None


def _openvino_runner(
    model: PreTrainedModel, max_length: int, options: EngineOptions, block_size: int | None, asked: bool
) -> PagedRunner:
    """Return OpenVINO's runner; raise UnsupportedGraph if PyTorch should compute the model."""
    config, dtype = model.config.get_text_config().to_dict(), str(model.dtype).removeprefix("torch.")
    if reason := reason_for_torch(options, model.device.type == "cpu", dtype, config):
        raise UnsupportedGraph(reason)
    if not asked and model.num_parameters() < FEW_PARAMETERS:
        raise UnsupportedGraph("a model this small starts sooner")
    if block_size == BLOCK_SIZE:
        raise UnsupportedGraph("the cache of the model that it drafts for has blocks of another size")
    from lmi_plugins.torch_engine.model.graph.openvino_runner import OpenVinoRunner

    return OpenVinoRunner(model, max_length, options)
