"""`lmi try`: one request to a model directory, over a private Unix socket."""

import asyncio
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import orjson

from lmi_core.errors import ConfigurationError
from lmi_core.plugins.loading import Plugins
from lmi_core.serving.model_plan import ModelPlan
from lmi_handlers.cli.private_server import DEFAULT_PROMPT, own_server, plan_of_command, prompt_body, scripted_plan

FAILED = 400
WATCH_SECONDS = 0.2
WITHOUT_BODY = ("GET", "HEAD", "DELETE", "OPTIONS")  # these methods send a body only if `--body` is given


@dataclass(frozen=True)
class Trial:
    """The arguments of `lmi try`."""

    directory: Path
    plugins_directory: Path | None = None
    prompt: str | None = None
    body: Path | None = None
    stream: bool = False
    route: str = "/invocations"
    say: str | None = None  # text for the scripted backend; None: its default
    real: bool = False  # use the model's own backend instead of the scripted one
    method: str = "POST"
    options: tuple[str, ...] = ()


def run_trial(trial: Trial) -> bool:
    """Print the answer as it arrives and return whether it succeeded, including the end of a stream.

    Raise ConfigurationError if the directory cannot be served or the body cannot be read.
    """
    if trial.method in WITHOUT_BODY and (trial.prompt is not None or trial.stream):
        given = "--stream" if trial.stream else "--prompt"
        raise ConfigurationError(f"{given} is part of a request's body, which {trial.method} does not have")
    only = plan_of_command(str(trial.directory), trial.options, trial.plugins_directory)
    plan = only.plan if trial.real else scripted_plan(only.plan, only.plugins, trial.say)
    return asyncio.run(_print_answer(plan, only.plugins, trial))


def watch(trial: Trial) -> None:
    """Run the trial now, and again whenever a file of the directory changes, until Ctrl-C."""
    for _ in changes(trial.directory, WATCH_SECONDS):
        try:
            run_trial(trial)
        except ConfigurationError as error:
            print(f"lmi: {error.message}", file=sys.stderr)
        print(f"-- watching {trial.directory}: save a file to try again", flush=True)


def changes(directory: Path, pause: float) -> Iterator[None]:
    """Yield immediately, and whenever a Python or properties file changes; poll every `pause` seconds."""
    seen: dict[Path, tuple[int, int]] | None = None
    while True:
        files = [*directory.rglob("*.py"), *directory.glob("*.properties")]
        states = {path: path.stat() for path in files if path.is_file()}
        found = {path: (state.st_mtime_ns, state.st_size) for path, state in states.items()}
        if found != seen:
            seen = found
            yield
        else:
            time.sleep(pause)


async def _print_answer(plan: ModelPlan, plugins: Plugins, trial: Trial) -> bool:
    body = _body(trial)
    headers = {} if body is None else {"Content-Type": "application/json"}
    async with own_server(plan, plugins) as (client, dispatcher):
        begun = time.perf_counter()
        async with client.request(trial.method, trial.route, data=body, headers=headers) as response:
            print(f"{response.status} {response.headers.get('Content-Type', '')}")
            async for chunk in response.content.iter_any():
                milliseconds = (time.perf_counter() - begun) * 1000
                text = chunk.decode(errors="backslashreplace").replace("\n", "\\n")
                print(f"{milliseconds:9.1f} ms  {text}", flush=True)
            # Errors after the start of a stream leave its status
            return response.status < FAILED and not dispatcher.metrics.errors.latest


def _body(trial: Trial) -> bytes | None:
    if trial.body is None:
        if trial.method in WITHOUT_BODY:
            return None
        return orjson.dumps(
            prompt_body(trial.route, trial.prompt or DEFAULT_PROMPT) | ({"stream": True} if trial.stream else {})
        )
    try:
        body = trial.body.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{trial.body} cannot be read: {error.strerror}") from None
    return orjson.dumps(orjson.loads(body) | {"stream": True}) if trial.stream else body
