"""A model's own formatters, in `model.py` and in its adapters."""

from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lmi_core.configuration.properties import RequestProperties
from lmi_core.errors import ConfigurationError
from lmi_core.script.environment import model_environment
from lmi_core.script.formatters.input_formatters import InputFunction
from lmi_core.script.formatters.model_script import LOADING_SECONDS, SCRIPT, CustomOutput, ModelScript, load_script
from lmi_core.script.formatters.output_formatters import FormatterFunction

ADAPTER_WEIGHTS = "adapter_config.json"
NO_FORMATTER = "has no effect: none of its functions is decorated with @output_formatter or @input_formatter from `lmi`"


@dataclass(frozen=True)
class ChosenFormatters:
    """A loaded script's selected input and output formatters, and descriptions of the choice for `lmi check`."""

    output: CustomOutput | None = None
    output_name: str | None = None
    input: InputFunction | None = None
    descriptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    script: ModelScript | None = None
    available: tuple[str, ...] = ()  # the names of all output formatters of the script and of plugins

    def unload(self) -> None:
        """Drop the script's modules; running calls keep them."""
        if self.script is not None:
            self.script.importer.unload()


@dataclass
class ModelCode:
    """The formatters of a model, and of each adapter with its own script."""

    base: ChosenFormatters = field(default_factory=ChosenFormatters)
    adapters: dict[str, ChosenFormatters] = field(default_factory=dict)
    adapters_with_weights: set[str] = field(default_factory=set)
    site_packages: Path | None = None  # of the environment that the scripts are loaded in
    loading_seconds: float = LOADING_SECONDS  # for each of them

    @property
    def script(self) -> ModelScript | None:
        """The model's own script."""
        return self.base.script

    @property
    def writes(self) -> bool:
        """Whether the model or an adapter has its own output formatter."""
        return any(chosen.output is not None for _, chosen in self._all())

    def of(self, adapter: str | None) -> ChosenFormatters:
        """Return the formatters of an adapter, or the model's if it has none."""
        own = None if adapter is None else self.adapters.get(adapter)
        if own is None:
            return self.base
        return ChosenFormatters(own.output or self.base.output, input=own.input or self.base.input)

    def base_options(self, options: RequestProperties, formatters: Container[object]) -> RequestProperties:
        """Return the options that choose the formatter of answers that the model's own formatter does not write."""
        if options.output_formatter != self.base.output_name or options.output_formatter in formatters:
            return options
        return options.model_copy(update={"output_formatter": None})

    def descriptions(self) -> list[str]:
        """Return lines for `lmi check`: which functions are called, and how."""
        return [line for name, chosen in self._all() for line in _of_adapter(name, chosen.descriptions)]

    def warnings(self) -> list[str]:
        return [line for name, chosen in self._all() for line in _of_adapter(name, chosen.warnings)]

    def _all(self) -> list[tuple[str | None, ChosenFormatters]]:
        return [(None, self.base), *self.adapters.items()]

    def read_adapter(self, directory: Path) -> ChosenFormatters:
        """Load an adapter's script without activating it. Raise ConfigurationError if this fails."""
        return choose(load_script(directory / SCRIPT, self.site_packages, self.loading_seconds), None, {})

    def set_adapter(self, name: str, code: ChosenFormatters | None, has_weights: bool) -> None:
        """Activate an adapter's code, replacing any code of that name."""
        self.unload_adapter(name)
        if code is not None:
            self.adapters[name] = code
        if has_weights:
            self.adapters_with_weights.add(name)

    def unload(self) -> None:
        """Drop all modules of the model and of its adapters; running calls keep them."""
        for _, chosen in self._all():
            chosen.unload()

    def unload_adapter(self, name: str) -> None:
        """Drop the code of an adapter; running calls keep it."""
        self.adapters_with_weights.discard(name)
        if (own := self.adapters.pop(name, None)) is not None:
            own.unload()


def _of_adapter(name: str | None, lines: tuple[str, ...]) -> list[str]:
    return list(lines) if name is None else [f"adapter {name}: {line}" for line in lines]


def load_code(
    directory: Path, options: RequestProperties, plugin_formatters: Mapping[str, CustomOutput], adapters: Path
) -> ModelCode:
    """Load the directory's `model.py` or `option.entryPoint`, and the scripts in the folders of `adapters`.

    Raise ConfigurationError if one cannot be loaded.
    """
    path = directory / (options.script or SCRIPT)
    environment = model_environment(directory, options.enable_venv)
    site_packages = environment.site_packages if environment is not None else None
    seconds = options.model_loading_timeout
    script = load_script(path, site_packages, seconds) if path.is_file() else None
    code = ModelCode(ChosenFormatters(script=script), site_packages=site_packages, loading_seconds=seconds)
    with unloaded_on_failure(code):
        code.base = choose(script, options.output_formatter, plugin_formatters)
        if script is not None and not script.outputs and not script.inputs:
            code.base = replace(code.base, warnings=(*code.base.warnings, f"{path.name} {NO_FORMATTER}"))
        with_script = {path.parent for path in adapters.glob(f"*/{SCRIPT}")}
        with_weights = {path.parent for path in adapters.glob(f"*/{ADAPTER_WEIGHTS}")}
        for adapter in sorted(with_script | with_weights):
            own = code.read_adapter(adapter) if adapter in with_script else None
            code.set_adapter(adapter.name, own, adapter in with_weights)
    return code


@contextmanager
def unloaded_on_failure(code: ModelCode) -> Iterator[None]:
    """Drop all modules of the code if the body raises."""
    try:
        yield
    except BaseException:
        code.unload()
        raise


def choose(
    script: ModelScript | None, output_formatter: str | None, plugin_formatters: Mapping[str, CustomOutput]
) -> ChosenFormatters:
    """Choose the output formatter in `option.output_formatter` or in the script, and the script's input formatter."""
    outputs, inputs = (script.outputs, script.inputs) if script is not None else ({}, {})
    taken = sorted(outputs.keys() & plugin_formatters.keys())
    if taken:
        raise ConfigurationError(f"{SCRIPT} and a plugin both define the output formatter {taken[0]}")
    available = {**plugin_formatters, **outputs}
    names = [output_formatter] if output_formatter in available else sorted(outputs)
    name = str(names[0]) if names else None
    output = available[name] if name is not None else None
    chosen_input = inputs[min(inputs)] if inputs else None
    warnings = [*_several("output", names), *_several("input", sorted(inputs)), *_ambiguities(output, chosen_input)]
    descriptions = _descriptions(output, chosen_input)
    return ChosenFormatters(output, name, chosen_input, tuple(descriptions), tuple(warnings), script, tuple(available))


def _descriptions(output: CustomOutput | None, chosen_input: InputFunction | None) -> list[str]:
    lines = []
    if isinstance(output, FormatterFunction):
        lines.append(f"custom output formatter: {output.name}, called as {output.reading.contract}")
    elif output is not None:
        lines.append(f"custom output formatter: class {output.__name__}")
    if chosen_input is not None:
        lines.append(f"custom input formatter: {chosen_input.name}, called as {chosen_input.reading.contract}")
    return lines


def _several(kind: str, names: list[Any]) -> list[str]:
    if len(names) < 2:
        return []
    return [f"there are {len(names)} {kind} formatters ({', '.join(names)}): {names[0]} is used, the first by name"]


def _ambiguities(*functions: CustomOutput | InputFunction | None) -> list[str]:
    return [
        f"the signature of {function.name} is ambiguous: {function.reading.ambiguous}. It is called as "
        f"{function.reading.contract}"
        for function in functions
        if isinstance(function, FormatterFunction | InputFunction) and function.reading.ambiguous
    ]
