"""An output formatter, run on a text without a model."""

import inspect
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp

from lmi_core.formatter import OutputFormatter
from lmi_core.plugins.loading import Plugins, load_plugins
from lmi_core.script.formatters.model_code import ModelCode, choose
from lmi_core.script.formatters.model_script import custom_output
from lmi_core.serving.model_plan import ModelPlan
from lmi_handlers.cli.plans import read_plans
from lmi_handlers.cli.private_server import DEFAULT_PROMPT, SCRIPTED, own_server, prompt_body, scripted_plan
from lmi_handlers.offline.loop_thread import LoopThread

MODEL_NAME = "model"
FORMATTER = "formatter"


@dataclass(frozen=True, slots=True)
class Sent:
    """The data that a client receives, in pieces as they are sent."""

    status: int
    content_type: str
    headers: Mapping[str, str]
    pieces: Sequence[str]

    @property
    def text(self) -> str:
        """The whole body."""
        return "".join(self.pieces)


@dataclass(frozen=True, slots=True)
class FormatterRun:
    """A formatter's output for a text: whole and streamed."""

    description: Sequence[str]  # how the formatter is called, as `lmi check` prints it
    warnings: Sequence[str]  # the warnings, as `lmi check` prints them
    whole: Sent
    stream: Sent


def run_formatter(
    formatter: Callable[..., Any] | type[OutputFormatter],
    text: str,
    *,
    prompt: str = DEFAULT_PROMPT,
    route: str = "/invocations",
    **parameters: Any,
) -> FormatterRun:
    """Return the data that would be sent if a model with this output formatter answered the prompt with the text.

    The formatter is a function or a class as in a model.py, with or without a decorator; its contract is detected in
    the same way. `parameters` are those of the request. Raise ConfigurationError if it follows no contract.
    """
    custom = custom_output(formatter, _folder(formatter))
    with tempfile.TemporaryDirectory(prefix="lmi-") as folder:
        directory = Path(folder) / MODEL_NAME
        directory.mkdir()
        (directory / "serving.properties").write_text(f"option.rolling_batch={SCRIPTED}\n")
        plugins = load_plugins()
        (plan,) = read_plans(directory, {}, plugins)
        code = ModelCode(choose(None, FORMATTER, {FORMATTER: custom}))
        plan = replace(scripted_plan(plan, plugins, text), code=code)
        body = prompt_body(route, prompt) | (parameters if route.startswith("/v1/") else {"parameters": parameters})
        thread = LoopThread("formatter")
        try:
            whole, stream = thread.run(_answers(plan, plugins, route, body))
        finally:
            thread.close()
    return FormatterRun(tuple(code.descriptions()), tuple(code.warnings()), whole, stream)


def _folder(formatter: Callable[..., Any]) -> Path:
    """Return the folder of the formatter's file, or any folder for one typed in a shell."""
    try:
        return Path(inspect.getfile(formatter)).parent
    except (OSError, TypeError):
        return Path()


async def _answers(plan: ModelPlan, plugins: Plugins, route: str, body: dict[str, object]) -> tuple[Sent, Sent]:
    async with own_server(plan, plugins) as (client, _):
        return await _send(client, route, body), await _send(client, route, body | {"stream": True})


async def _send(client: aiohttp.ClientSession, route: str, body: dict[str, object]) -> Sent:
    async with client.post(route, json=body) as response:
        chunks = [b""]
        async for data, ends in response.content.iter_chunks():
            chunks[-1] += data
            if ends:
                chunks.append(b"")
        pieces = [chunk.decode(errors="backslashreplace") for chunk in chunks if chunk]
        return Sent(response.status, response.headers.get("Content-Type", ""), dict(response.headers), pieces)
