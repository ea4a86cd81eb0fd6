"""The model directory of a soak: examples/hello with two adapters, and an engine that is found frozen soon."""

import shutil
from pathlib import Path

from transformers import AutoModelForCausalLM

from tests.clients.test_every_dialect import HELLO
from tests.plugins.torch_engine.adapters.lora_adapters import save_adapter
from tests.soak.questions import PASSING, STEADY

NOT_COPIED = shutil.ignore_patterns("*.py", "README.md", "serving.properties")
COMMON = """\
option.max_rolling_batch_size=16
option.response_store_size=100000
job_queue_size=64
retry_threshold=1000
"""
PROPERTIES = {
    "torch": "option.rolling_batch=torch\noption.heartbeat_timeout=5\n",
    "vllm": """\
option.rolling_batch=vllm
option.heartbeat_timeout=20
option.enforce_eager=true
option.dtype=fp32
option.max_model_len=2048
option.max_loras=2
""",
}


def save_visitor(folder: Path) -> Path:
    """Write the model directory of the model that comes and goes."""
    directory = folder / "visitor"
    shutil.copytree(HELLO, directory, ignore=NOT_COPIED)
    (directory / "serving.properties").write_text(PROPERTIES["torch"])
    return directory


def save_directory(folder: Path, backend: str) -> Path:
    """Write the model directory `hello` into the folder, and beside it the adapter that is loaded later."""
    directory = folder / "hello"
    shutil.copytree(HELLO, directory, ignore=NOT_COPIED)
    (directory / "serving.properties").write_text(PROPERTIES[backend] + COMMON)
    model = AutoModelForCausalLM.from_pretrained(HELLO)
    save_adapter(directory / "adapters" / STEADY, model, seed=1)
    save_adapter(folder / PASSING, model, seed=2)
    return directory
