"""The setup of a model function."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import msgspec
from pydantic import Field

from lmi_core.configuration.configuration import DEFAULT, Configuration
from lmi_core.configuration.properties import OPTION_PREFIX, ModelProperties, RequestProperties, ServerProperties
from lmi_core.script.djl_names.inputs import BATCH_SIZE
from lmi_core.script.djl_names.outputs import JSON, TEXT
from lmi_core.script.environment import model_environment
from lmi_core.script.function.finding import rolls
from lmi_core.script.function.pool import PoolSettings
from lmi_core.script.function.protocol import Load, Request
from lmi_core.serving_runtime import RuntimeSetup

NAME, SOURCE = "name", "src"  # properties of an adapter, in the call that registers it
CONTENT_TYPES = {"json": JSON, "jsonlines": "application/jsonlines", "sse": "text/event-stream"}


class FunctionProperties(ModelProperties):
    """The declared `option.*` keys of a model function, which gets all keys as properties of its input."""

    task: str | None = Field(default=None, description="Whatever the function does.")


@dataclass(frozen=True, slots=True)
class FunctionSetup(RuntimeSetup[FunctionProperties]):
    """The setup of a model function: the settings of every runtime, of its processes and of their pool."""

    load: Load = field(kw_only=True)
    pool: PoolSettings = field(kw_only=True)
    max_output_size: int = field(kw_only=True)

    def with_folders(self, folders: Mapping[str, Path]) -> Self:
        """Return the setup with folders as the values of options and of the function's own properties."""
        values = {option: str(folder) for option, folder in folders.items()}
        load = msgspec.structs.replace(self.load, properties={**self.load.properties, **values})
        return replace(super(FunctionSetup, self).with_folders(folders), load=load)


def function_setup(
    setup: RuntimeSetup[FunctionProperties],
    script: Path,
    configuration: Configuration,
    server: ServerProperties,
    options: RequestProperties,
) -> FunctionSetup:
    """Return the setup for the function in a script.

    Its properties are the given keys, also from the environment, and `model_dir`.
    """
    given = [each for each in configuration.effective() if each.source != DEFAULT and each.key != BATCH_SIZE]
    properties = {each.key.removeprefix(OPTION_PREFIX): each.value for each in given}
    rolling = rolls(script, configuration, options)
    environment = model_environment(setup.directory, options.enable_venv)
    python = str(environment.python) if environment is not None else None
    folders = sorted((setup.directory / setup.properties.adapters).glob("*/"))
    load = Load(
        script=str(script),
        function=options.handler,
        properties=properties | {"model_dir": str(script.parent)},
        adapters={folder.name: adapter_change(folder.name, str(folder.resolve()), {}) for folder in folders},
        rolling_batch_size=setup.properties.max_rolling_batch_size if rolling else None,
        content_type=CONTENT_TYPES.get(options.output_formatter or "json", TEXT),
    )
    return FunctionSetup(
        setup.directory,
        setup.properties,
        setup.engine_arguments,
        setup.retry_threshold,
        load=load,
        pool=PoolSettings(server, options.own_code_timeout, python, rolling),
        max_output_size=options.max_output_size,
    )


def adapter_change(name: str, source: str, fields: Mapping[str, str]) -> Request:
    """Return the request that registers or updates an adapter.

    Any other fields are passed as both properties and contents, because scripts may read either.
    """
    given = {**fields, NAME: name, SOURCE: source}
    return Request(given, [(key, value.encode()) for key, value in given.items()])
