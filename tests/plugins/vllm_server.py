"""A server of examples/hello on the vLLM backend, and reference results of vLLM itself."""

import asyncio
import itertools
import shutil
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from lmi_plugins.backends.vllm import VllmBackend
from tests.conftest import RunningServer

HELLO = Path(__file__).parents[2] / "examples" / "hello"
MODEL_FILES = ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
PROPERTIES = "option.rolling_batch=vllm\noption.enforce_eager=true\noption.dtype=fp32\noption.max_model_len=1024\n"
# The model in the engine's process instead of one more, which imports everything once more: a third less to start.
ONE_PROCESS = "option.distributed_executor_backend=vllm.v1.executor.uniproc_executor.UniProcExecutor\n"
ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "1"}  # GiB; only CPU builds read it
T = TypeVar("T")

STORY = "Tell me a story."


class VllmServer:
    """A server in this process, whose engine tests can also call directly."""

    def __init__(self, server: RunningServer) -> None:
        self.server = server
        self._ids = itertools.count()

    @property
    def backend(self) -> VllmBackend:
        backend = self.server.model.backend
        assert isinstance(backend, VllmBackend)
        return backend

    @property
    def engine(self) -> Any:
        """vLLM's AsyncLLM."""
        assert self.backend._service is not None
        return self.backend._service._engine.vllm

    def encode(self, text: str) -> list[int]:
        return self.backend.tokenizer.encode(text)

    async def ask(self, inputs: str, **parameters: Any) -> dict[str, Any]:
        """Return the whole answer with details."""
        body = {"inputs": inputs, "parameters": {"details": True, **parameters}}
        answer = await self.server.post("/invocations", body)
        assert answer.status == 200, answer.body
        found: dict[str, Any] = answer.json()
        return found

    async def refusal(self, inputs: str, **parameters: Any) -> str:
        answer = await self.server.post("/invocations", {"inputs": inputs, "parameters": parameters})
        assert answer.status == 424, answer.body
        return str(answer.json()["error"])

    async def stream(self, inputs: str, **parameters: Any) -> list[Any]:
        """Return the parsed lines of a stream."""
        answer = await self.server.post("/invocations", {"inputs": inputs, "stream": True, "parameters": parameters})
        assert answer.status == 200, answer.body
        return answer.json_lines()

    async def beside_a_stream(self, other: Awaitable[T]) -> tuple[list[Any], T]:
        """Return the lines of a stream, and the result of `other`, run while the stream is open."""
        stream, found = await asyncio.gather(self.stream(STORY), other)
        return stream, found

    async def vllm(self, inputs: str, last: int = 0, **sampling: Any) -> Any:
        """Return vLLM's final output for its own sampling parameters, for all or the `last` tokens of the prompt."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        parameters = SamplingParams(**{"max_tokens": 30, "output_kind": RequestOutputKind.FINAL_ONLY, **sampling})
        prompt: Any = {"prompt_token_ids": self.encode(inputs)[-last:]}
        request_id = f"own-{next(self._ids)}"
        outputs = [each async for each in self.engine.generate(prompt, parameters, request_id)]
        return outputs[-1]

    async def is_working(self) -> bool:
        """Return whether the engine's scheduler has any running or waiting request."""
        return bool(await self.engine.engine_core.call_utility_async("has_work"))

    async def until(self, *, working: bool) -> int:
        """Poll the engine until it is `working` or not; return the number of polls, each between two steps."""
        for asked in itertools.count():
            if await self.is_working() is working:
                return asked
        raise AssertionError


def copy_hello(directory: Path, properties: str) -> Path:
    """Copy the model's files to a directory with other properties."""
    directory.mkdir()
    for name in MODEL_FILES:
        shutil.copy(HELLO / name, directory)
    (directory / "serving.properties").write_text(properties)
    return directory


def ids(tokens: Sequence[dict[str, Any]]) -> list[int]:
    return [token["id"] for token in tokens]
