"""Fixtures of a shared vLLM engine, as starting one takes all cores for 20 seconds."""

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.conftest import running_server
from tests.plugins.vllm_server import ENVIRONMENT, HELLO, MODEL_FILES, ONE_PROCESS, PROPERTIES, VllmServer

# Small enough for tests to reach the bounds.
SMALL = """\
option.max_rolling_batch_size=8
option.max_rolling_batch_prefill_tokens=256
option.max_loras=2
option.max_lora_rank=8
option.reasoning_parser=qwen3
option.guide_compile_timeout=3
"""


@pytest.fixture(scope="session")
def vllm_environment() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="session")
def hello_with_adapters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy examples/hello for vLLM, with two LoRA adapters."""
    from tests.plugins.torch_engine.adapters.lora_adapters import save_adapter
    from tests.plugins.torch_engine.tiny_models import reference_model

    directory = tmp_path_factory.mktemp("vllm") / "hello"
    directory.mkdir()
    for name in MODEL_FILES:
        shutil.copy(HELLO / name, directory)
    (directory / "serving.properties").write_text(PROPERTIES + ONE_PROCESS + SMALL)
    for seed, name in enumerate(("french", "german")):
        save_adapter(directory / "adapters" / name, reference_model(HELLO), seed)
    return directory


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def vllm(vllm_environment: None, hello_with_adapters: Path) -> AsyncIterator[VllmServer]:
    async with running_server(hello_with_adapters) as server:
        yield VllmServer(server)
