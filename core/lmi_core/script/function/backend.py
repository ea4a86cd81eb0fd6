"""A model that its author's `handle` function serves: content in, content out, and no generation of ours."""

import ast
from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import msgspec
from pydantic import Field

from lmi_core.backend import Backend, BackendSetup
from lmi_core.configuration.configuration import DEFAULT, Configuration
from lmi_core.configuration.devices import visible_gpus
from lmi_core.configuration.properties import OPTION_PREFIX, HandlerProperties, ModelProperties, ServerProperties
from lmi_core.errors import ConfigurationError, FormatterFailed, GenerationFailed
from lmi_core.generation import GenerationStep
from lmi_core.handler import Call
from lmi_core.remote.location import RemoteModel, is_s3
from lmi_core.request import ValidRequest
from lmi_core.script.call_properties import call_properties
from lmi_core.script.djl_names.inputs import BATCH_SIZE
from lmi_core.script.djl_names.outputs import JSON, TEXT
from lmi_core.script.environment import model_environment
from lmi_core.script.formatters.model_script import SCRIPT
from lmi_core.script.function.pool import HandlerPool, PoolSettings
from lmi_core.script.function.prediction_marks import has_prediction_handler
from lmi_core.script.function.protocol import Chunk, Content, Head, Load, Request
from lmi_core.script.import_checks import require_imports
from lmi_core.script.tracebacks import own_traceback

HANDLE = "handle"
NAME, SOURCE = "name", "src"  # of an adapter, in the call that registers it
ROLLING_BATCH = "option.rolling_batch"
CONTENT_TYPES = {"json": JSON, "jsonlines": "application/jsonlines", "sse": "text/event-stream"}
OPPOSITES = {
    "register_adapter": "unregister_adapter",
    "update_adapter": "update_adapter",
    "unregister_adapter": "register_adapter",
}
LMI_HANDLERS = ("djl_python.huggingface", "djl_python.tensorrt_llm")  # the others run a `handle` of model.py, if any


class HandlerModelProperties(ModelProperties):
    """Every other `option.*` key reaches the function too, as a property of its input."""

    task: str | None = Field(default=None, description="Whatever the function does.")


@dataclass(frozen=True, slots=True)
class HandlerSetup(BackendSetup[HandlerModelProperties]):
    """What a `handle` function is started with, beside what every backend is."""

    load: Load = field(kw_only=True)
    pool: PoolSettings = field(kw_only=True)
    max_output_size: int = field(kw_only=True)

    def with_folders(self, folders: Mapping[str, Path]) -> Self:
        """As every setup; the function's own properties have the folders too."""
        values = {option: str(folder) for option, folder in folders.items()}
        load = msgspec.structs.replace(self.load, properties={**self.load.properties, **values})
        return replace(super(HandlerSetup, self).with_folders(folders), load=load)


class HandlerBackend(Backend[HandlerModelProperties]):
    """Answers whole requests in worker processes; `generate` has nothing to do here."""

    name = "handler"
    properties_type = HandlerModelProperties

    def __init__(self, setup: BackendSetup[HandlerModelProperties]) -> None:
        super().__init__(setup)
        assert isinstance(setup, HandlerSetup)
        self.function = setup.load.function
        self._load = setup.load
        self._max_output_size = setup.max_output_size
        self.pool = HandlerPool(setup.load, setup.pool)

    @classmethod
    def downloads(cls, setup: BackendSetup[HandlerModelProperties]) -> Mapping[str, RemoteModel]:
        """With files of every format, as only the function's author knows which it reads."""
        model_id = setup.properties.model_id
        return {"model_id": RemoteModel(model_id, everything=True)} if model_id is not None and is_s3(model_id) else {}

    async def start(self) -> None:
        await self.pool.start()

    async def stop(self) -> None:
        await self.pool.stop()

    async def health(self) -> None:
        self.pool.check_health()

    async def given_up(self) -> str:
        return await self.pool.wait_given_up()

    def answer(self, call: Call, content: Content) -> AsyncGenerator[Head | Chunk, None]:
        """The head of the answer, and, if it streams, its chunks. Raises LmiError; closing it cancels the call.

        `content` is what the call's query and body hold, by name.
        """
        replies = self.pool.submit(self.function, Request(call_properties(call), content)).answer()
        return _no_larger(replies, self._max_output_size)

    @property
    def adapters(self) -> Collection[str]:
        return self._load.adapters

    def adapter_source(self, name: str) -> str:
        """What `register_adapter` was given as its source, whatever that means to it."""
        return self._load.adapters[name].properties[SOURCE]

    async def unload_adapter(self, name: str) -> None:
        await self.unregister_adapter(name)

    async def register_adapter(self, name: str, source: str, fields: Mapping[str, str] | None = None) -> None:
        """Call the script's function of that name in every process, and in those that start later. Raises LmiError.

        It gets the source as it is, and every other field of the request, as a property and as a content.
        """
        await self._adapter("register_adapter", name, _change(name, source, fields or {}))

    async def update_adapter(self, name: str, source: str | None, fields: Mapping[str, str] | None = None) -> None:
        """Call the script's `update_adapter` likewise; what the request leaves out stays as it was."""
        before = dict(self._load.adapters[name].content) if name in self._load.adapters else {}
        kept = {key: value.decode() for key, value in before.items() if key not in (None, NAME, SOURCE)}
        change = _change(name, source or self.adapter_source(name), kept | dict(fields or {}))
        await self._adapter("update_adapter", name, change)

    async def unregister_adapter(self, name: str) -> None:
        """Call the script's function of that name in every process. Raises LmiError."""
        await self._adapter("unregister_adapter", name, Request({NAME: name}, []))

    async def _adapter(self, function: str, name: str, change: Request) -> None:
        await self.pool.broadcast(function, change, self._undoing(function, name))
        self._load.adapters.pop(name, None)
        if SOURCE in change.properties:
            self._load.adapters[name] = change

    def _undoing(self, function: str, name: str) -> tuple[str, Request]:
        """The call that makes a process have what it had before a change that failed in another."""
        return OPPOSITES[function], self._load.adapters.get(name, Request({NAME: name}, []))

    async def generate(self, request: ValidRequest) -> AsyncGenerator[GenerationStep, None]:
        raise GenerationFailed(f"this model is served by its own function {self.function}, which does not generate")
        yield  # a generator, as every backend's


async def _no_larger(
    replies: AsyncGenerator[Head | Chunk, None], most_bytes: int
) -> AsyncGenerator[Head | Chunk, None]:
    """Raises FormatterFailed where the whole is larger."""
    size = 0
    async with aclosing(replies):
        async for reply in replies:
            size += len(reply.data) if isinstance(reply, Chunk) else sum(len(value) for _, value in reply.content)
            if size > most_bytes:
                raise FormatterFailed(f"the handler answered with more than option.max_output_size={most_bytes} bytes")
            yield reply


def _change(name: str, source: str, fields: Mapping[str, str]) -> Request:
    """Where a script looks for the further fields depends on who wrote it: they are properties, and contents too."""
    given = {**fields, NAME: name, SOURCE: source}
    return Request(given, [(key, value.encode()) for key, value in given.items()])


def rolls(script: Path, configuration: Configuration, options: HandlerProperties) -> bool:
    """Return whether the function is of the rolling-batch form: `option.rolling_batch` is given and not `disable`.

    A prediction handler never is: what it returns is the whole answer.
    """
    given = any(each.key == ROLLING_BATCH and each.source != DEFAULT for each in configuration.effective())
    asked = given and options.rolling_batch != "disable" and not options.async_mode
    return asked and not has_prediction_handler(script)


def find_handler(directory: Path, options: HandlerProperties) -> Path | None:
    """The Python file whose function serves the model; tells without running it, as that may load a model."""
    path = directory / (options.script or SCRIPT)
    if options.entry_point in LMI_HANDLERS:
        return None
    if not path.is_file():
        if options.script is not None:
            raise ConfigurationError(f"option.entryPoint={options.script}: there is no such file in {directory}")
        return None
    if options.handler in _names_in(path) or (options.handler == HANDLE and has_prediction_handler(path)):
        require_imports(path, own_environment=options.enable_venv)
        return path.resolve()
    if options.handler != HANDLE:
        raise ConfigurationError(f"option.handler={options.handler}: {path} has no such function")
    return None


def choose_handler(
    script: Path, configuration: Configuration, options: HandlerProperties
) -> tuple[type[HandlerBackend], str]:
    """The backend, and in words how the function is called."""
    reason = f"{script.name} serves the model itself"
    if rolls(script, configuration, options):
        reason += f", in a rolling batch, unless {options.handler} is asynchronous: {ROLLING_BATCH}"
        reason += f"={options.rolling_batch}"
    return HandlerBackend, reason


def handler_setup(
    setup: BackendSetup[HandlerModelProperties],
    script: Path,
    configuration: Configuration,
    server: ServerProperties,
    options: HandlerProperties,
) -> HandlerSetup:
    """The function's properties are the keys that were given, those of the environment too, and `model_dir`."""
    given = [each for each in configuration.effective() if each.source != DEFAULT and each.key != BATCH_SIZE]
    properties = {each.key.removeprefix(OPTION_PREFIX): each.value for each in given}
    rolling = rolls(script, configuration, options)
    environment = model_environment(setup.directory, options.enable_venv)
    min_workers, max_workers = server.workers(visible_gpus())
    pool = PoolSettings(
        min_workers=min_workers,
        max_workers=max_workers,
        batch_size=1 if rolling else server.batch_size,
        max_batch_delay=server.max_batch_delay / 1000,
        predict_timeout=options.predict_timeout,
        retry_threshold=server.retry_threshold,
        max_idle_time=server.max_idle_time,
        python=str(environment.python) if environment is not None else None,
    )
    folders = sorted((setup.directory / setup.properties.adapters).glob("*/"))
    load = Load(
        script=str(script),
        function=options.handler,
        properties=properties | {"model_dir": str(script.parent)},
        adapters={folder.name: _change(folder.name, str(folder.resolve()), {}) for folder in folders},
        rolling_batch_size=setup.properties.max_rolling_batch_size if rolling else None,
        content_type=CONTENT_TYPES.get(options.output_formatter or "json", TEXT),
    )
    return HandlerSetup(
        setup.directory,
        setup.properties,
        setup.engine_arguments,
        setup.retry_threshold,
        load=load,
        pool=pool,
        max_output_size=options.max_output_size,
    )


def _names_in(script: Path) -> list[str]:
    try:
        module = ast.parse(script.read_bytes(), str(script))
    except SyntaxError as error:
        raise ConfigurationError(f"{script} cannot be loaded\n{own_traceback(error, script.parent)}") from None
    return [name for statement in module.body for name in _names(statement)]


def _names(statement: ast.stmt) -> list[str]:
    """What a statement at the top of a file makes known."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        return [statement.name]
    if isinstance(statement, ast.ImportFrom):
        return [each.asname or each.name for each in statement.names]
    if isinstance(statement, ast.Assign):
        return [target.id for target in statement.targets if isinstance(target, ast.Name)]
    if isinstance(statement, ast.If | ast.Try | ast.With):
        blocks = [*statement.body, *getattr(statement, "orelse", [])]
        return [name for each in blocks for name in _names(each)]
    return []
