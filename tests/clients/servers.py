"""The servers for client programs: the hello model on the torch engine; a model that calls tools; a reranker."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import torch

from tests.clients.log_likelihoods import log_likelihoods
from tests.clients.programs.cases import (
    ADAPTED_VARIABLE,
    GRPC_VARIABLE,
    HELLO_VARIABLE,
    LOG_LIKELIHOODS_VARIABLE,
    RANKING_VARIABLE,
    SAYING_VARIABLE,
    TORCH_VARIABLE,
)
from tests.clients.programs.values import ADAPTER, HELLO_FOLDER, QUESTION, RANKING
from tests.lmi_process import lmi_serve
from tests.plugins.torch_engine.adapters.lora_adapters import save_adapter
from tests.plugins.torch_engine.tiny_models import reference_model

PLUGINS = Path(__file__).with_name("plugins")
HELLO_PROPERTIES = f"""\
option.model_id={HELLO_FOLDER}
option.rolling_batch=torch
option.enable_lora=true
option.chat_template=tools.jinja
option.enable_tokenizer_info_endpoint=true
option.served_model_name=hello,gpt-hello
"""
SAYING_PROPERTIES = """\
option.rolling_batch=saying
option.tool_call_parser=hermes
option.reasoning_parser=qwen3
option.served_model_name=saying
"""
RANKING_PROPERTIES = "option.rolling_batch=scripted\noption.task=reranking\n"
# hello's own, and a place for tools.
TOOLS = "{% for tool in tools or [] %}{{ tool.function.name }} {% endfor %}"


@asynccontextmanager
async def running_servers(folder: Path) -> AsyncIterator[dict[str, str]]:
    """Yield the environment variables that programs read; the models are written into the folder."""
    model = reference_model(HELLO_FOLDER)
    hello, saying = _write_hello(folder / "hello", model), _write(folder / "saying", SAYING_PROPERTIES)
    variables = {
        LOG_LIKELIHOODS_VARIABLE: json.dumps(log_likelihoods(model)),
        TORCH_VARIABLE: str(Path(torch.__file__).parents[1]),
    }
    ranking = _write(folder / RANKING, RANKING_PROPERTIES)
    async with (
        _served(hello, "--grpc-port", 0) as ready,
        _served(saying, "--plugins-dir", PLUGINS) as ready_saying,
        _served(ranking, "--plugins-dir", PLUGINS) as ready_ranking,
    ):
        url, address = _address(r"http://[\w.:]+", ready), _address(r"(?<=gRPC on )\S+", ready)
        yield variables | {
            HELLO_VARIABLE: url,
            GRPC_VARIABLE: address,
            SAYING_VARIABLE: _address(r"http://[\w.:]+", ready_saying),
            RANKING_VARIABLE: _address(r"http://[\w.:]+", ready_ranking),
            ADAPTED_VARIABLE: await _adapted_text(url),
        }


def _address(pattern: str, ready: str) -> str:
    found = re.search(pattern, ready)
    return found[0] if found else ""


def _write_hello(directory: Path, model: Any) -> Path:
    directory.mkdir()
    template = TOOLS + (HELLO_FOLDER / "chat_template.jinja").read_text(encoding="utf-8")
    (directory / "tools.jinja").write_text(template, encoding="utf-8")
    (directory / "serving.properties").write_text(HELLO_PROPERTIES, encoding="utf-8")
    save_adapter(directory / "adapters" / ADAPTER, model, seed=0)
    return directory


def _write(directory: Path, properties: str) -> Path:
    directory.mkdir()
    (directory / "serving.properties").write_text(properties, encoding="utf-8")
    return directory


@asynccontextmanager
async def _served(directory: Path, *arguments: object) -> AsyncIterator[str]:
    """Yield the line in which the server says that it is ready, and where."""
    async with lmi_serve(directory, "--port", 0, *arguments) as server:
        ready = await server.line_with("Ready")
        log = asyncio.create_task(server.line_with("no line is like this"))  # a full pipe would block the server
        try:
            yield ready
        finally:
            log.cancel()
            with suppress(asyncio.CancelledError):
                await log


async def _adapted_text(url: str) -> str:
    """Return what the adapter answers through LMI's schema, which is what every other dialect is to give."""
    body = {"inputs": QUESTION, "adapters": ADAPTER, "parameters": {"max_new_tokens": 8}}
    async with aiohttp.ClientSession(url) as client, client.post("/invocations", json=body) as response:
        assert response.status == 200, await response.text()
        return str((await response.json())["generated_text"])
