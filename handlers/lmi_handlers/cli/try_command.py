"""`lmi try`: one request to a model directory, over a Unix socket of its own."""

import asyncio
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import aiohttp
import orjson

from lmi_core.backend import BackendSetup
from lmi_core.engines.logs import LOG_LEVEL_VARIABLE, configure_logging
from lmi_core.errors import ConfigurationError
from lmi_core.plugins.loading import Plugins, load_plugins
from lmi_core.serving.model_plan import ModelPlan
from lmi_handlers.cli.connection import own_server
from lmi_handlers.cli.serving import read_plans

SCRIPTED = "scripted"
DEFAULT_PROMPT = "What is Deep Learning?"
DEFAULT_ROUTE = "/invocations"
FAILED = 400
WATCH_SECONDS = 0.2
SCRIPTED_DELAY = 0.01  # seconds between tokens, which makes each a chunk of its own


@dataclass(frozen=True)
class Trial:
    """The arguments of `lmi try`."""

    directory: Path
    plugins_directory: Path | None = None
    prompt: str | None = None
    body: Path | None = None
    stream: bool = False
    route: str = DEFAULT_ROUTE
    say: str | None = None  # text of the scripted backend; None: its default
    real: bool = False  # ask the model's own backend, not the scripted one


def run_trial(trial: Trial) -> bool:
    """Print the answer as it arrives and return whether its status is below 400.

    Raise ConfigurationError where the directory cannot be served or the body cannot be read.
    """
    configure_logging("warning")
    os.environ.setdefault(LOG_LEVEL_VARIABLE, "warning")  # read by the workers
    plugins = load_plugins(trial.plugins_directory)
    plans = read_plans(trial.directory, os.environ, plugins)
    if len(plans) > 1:
        raise ConfigurationError(f"{trial.directory} contains several models: give the directory of one")
    plan = plans[0] if trial.real else _scripted(plans[0], plugins, trial.say)
    return asyncio.run(_ask(plan, plugins, trial))


def watch(trial: Trial) -> None:
    """Run the trial now, and again each time that a file of the directory changes, until Ctrl-C."""
    for _ in changes(trial.directory, WATCH_SECONDS):
        try:
            run_trial(trial)
        except ConfigurationError as error:
            print(f"lmi: {error.message}", file=sys.stderr)
        print(f"-- watching {trial.directory}: save a file to try again", flush=True)


def changes(directory: Path, pause: float) -> Iterator[None]:
    """Yield at once, and then each time a Python or properties file has changed; poll every `pause` seconds."""
    seen: dict[Path, tuple[int, int]] | None = None
    while True:
        found = _state(directory)
        if found != seen:
            seen = found
            yield
        else:
            time.sleep(pause)


def _state(directory: Path) -> dict[Path, tuple[int, int]]:
    files = [*directory.rglob("*.py"), *directory.glob("*.properties")]
    found = {path: path.stat() for path in files if path.is_file()}
    return {path: (status.st_mtime_ns, status.st_size) for path, status in found.items()}


def _scripted(plan: ModelPlan, plugins: Plugins, say: str | None) -> ModelPlan:
    """Return the plan with the scripted backend in place of its own; a plan with a model function stays as it is."""
    if plan.backend is None or (plan.backend.name == SCRIPTED and say is None):
        return plan
    backend = plugins.backends.get(SCRIPTED)
    properties = backend.properties_type.model_validate(
        {"scripted_delay": SCRIPTED_DELAY} | ({} if say is None else {"scripted_text": say})
    )
    return replace(plan, backend=backend, setup=BackendSetup(plan.directory, properties, {}, 0))


async def _ask(plan: ModelPlan, plugins: Plugins, trial: Trial) -> bool:
    async with own_server(plan, plugins) as client:
        return await _print_answer(client, trial)


async def _print_answer(client: aiohttp.ClientSession, trial: Trial) -> bool:
    begun = time.perf_counter()
    headers = {"Content-Type": "application/json"}
    async with client.post(trial.route, data=_body(trial), headers=headers) as response:
        print(f"{response.status} {response.headers.get('Content-Type', '')}")
        async for chunk in response.content.iter_any():
            milliseconds = (time.perf_counter() - begun) * 1000
            print(f"{milliseconds:9.1f} ms  {_on_one_line(chunk)}", flush=True)
        return response.status < FAILED


def _body(trial: Trial) -> bytes:
    if trial.body is None:
        return orjson.dumps(_payload(trial) | ({"stream": True} if trial.stream else {}))
    try:
        body = trial.body.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{trial.body} cannot be read: {error.strerror}") from None
    return orjson.dumps(orjson.loads(body) | {"stream": True}) if trial.stream else body


def _payload(trial: Trial) -> dict[str, object]:
    """Return the request body for the prompt in the schema of the route."""
    prompt = trial.prompt or DEFAULT_PROMPT
    if "chat" in trial.route:
        return {"messages": [{"role": "user", "content": prompt}]}
    if trial.route.startswith("/v1/"):
        return {"prompt": prompt}
    return {"text_input" if trial.route.startswith("/v2/") else "inputs": prompt}


def _on_one_line(chunk: bytes) -> str:
    return chunk.decode(errors="backslashreplace").replace("\n", "\\n")
