"""Engine arguments as text, parsed by vLLM's own parser, so that each has vLLM's type."""

import argparse
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NoReturn

from lmi_core.errors import ConfigurationError
from lmi_plugins.vllm_engine.arguments.parallel_degrees import MAX
from lmi_plugins.vllm_engine.library import AsyncEngineArgs, FlexibleArgumentParser, current_platform
from lmi_plugins.vllm_engine.requests.logits_processors import LOGITS_PROCESSORS

BOOLEANS = {"true": True, "false": False}


class RaisingParser(FlexibleArgumentParser):
    """A parser that raises argparse.ArgumentError wherever argparse would end the process."""

    def error(self, message: str) -> NoReturn:
        raise argparse.ArgumentError(None, message)


@dataclass(frozen=True)
class Declarations:
    """A parser, or a group of its arguments, that keeps the actions which `add_argument` returns."""

    container: Any
    actions: dict[str, argparse.Action]  # by the name of the engine argument

    def add_argument(self, *names: str, **options: Any) -> argparse.Action:
        """Add an argument, and keep its action."""
        action: argparse.Action = self.container.add_argument(*names, **options)
        self.actions[action.dest] = action
        return action

    def add_argument_group(self, *names: Any, **options: Any) -> "Declarations":
        """Add a group, whose arguments are kept with all others."""
        return Declarations(self.container.add_argument_group(*names, **options), self.actions)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.container, name)


@dataclass(frozen=True)
class EngineParser:
    """The parser of all engine arguments, and its declarations by name."""

    parser: FlexibleArgumentParser
    actions: Mapping[str, argparse.Action]


@cache
def engine_parser() -> EngineParser:
    """Return the parser of the installed vLLM."""
    declarations = Declarations(RaisingParser(add_help=False, exit_on_error=False), {})
    AsyncEngineArgs.add_cli_args(declarations)
    return EngineParser(declarations.container, declarations.actions)


def argument_names() -> frozenset[str]:
    """Return the names of all engine arguments, as `option.*` keys name them."""
    return frozenset(engine_parser().actions)


def engine_arguments(given: Mapping[str, str]) -> AsyncEngineArgs:
    """Return the arguments of vLLM's engine. Raise ConfigurationError for a value that vLLM refuses."""
    values = argparse.Namespace()
    for name, value in _resolved(given).items():
        # Each argument is parsed separately, so that errors refer to it.
        words = [*_words(engine_parser().actions[name], name, value)]
        try:
            engine_parser().parser.parse_args(words, values)
        except argparse.ArgumentError as error:
            raise ConfigurationError(f"option.{name}: {' '.join(error.message.split())}") from error
    arguments = AsyncEngineArgs.from_cli_args(engine_parser().parser.parse_args([], values))
    if arguments.speculative_config is None:  # vLLM accepts only one of the two
        arguments.logits_processors = [*(arguments.logits_processors or ()), *LOGITS_PROCESSORS]
    return arguments


def _resolved(given: Mapping[str, str]) -> dict[str, str]:
    if given.get("tensor_parallel_size") != MAX:
        return dict(given)
    return {**given, "tensor_parallel_size": str(max(1, current_platform.device_count()))}


def _words(action: argparse.Action, name: str, value: str) -> Iterable[str]:
    """Return one argument as it is on a command line."""
    flag = next(option for option in action.option_strings if option.startswith("--"))
    if action.nargs == 0:
        return _switch(action, name, value)
    if action.nargs in ("+", "*"):
        return [flag, *_items(name, value)]
    return [f"{flag}={value}"]


def _switch(action: argparse.Action, name: str, value: str) -> list[str]:
    on = BOOLEANS.get(value.lower())
    if on is None:
        raise ConfigurationError(f"option.{name} must be true or false. Given: {value}")
    words = [option for option in action.option_strings if option.startswith("--no-") is not on]
    return words[:1]  # empty for a switch that can only be turned on, and is off


def _items(name: str, value: str) -> list[str]:
    """Return the items of a JSON array, or of a list with commas or spaces."""
    if not value.startswith("["):
        return value.replace(",", " ").split()
    try:
        return [item if isinstance(item, str) else json.dumps(item) for item in json.loads(value)]
    except ValueError as error:
        raise ConfigurationError(f"option.{name} must be a JSON array: {error}. Given: {value}") from None
