"""Engine arguments as text, parsed by vLLM's own parser, so that each has vLLM's type."""

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import NoReturn

from lmi_core.errors import ConfigurationError
from lmi_plugins.vllm_engine.arguments.parallel_degrees import MAX
from lmi_plugins.vllm_engine.library import AsyncEngineArgs, FlexibleArgumentParser, current_platform
from lmi_plugins.vllm_engine.requests.logits_processors import LOGITS_PROCESSORS

BOOLEANS = {"true": True, "false": False}


class RaisingParser(FlexibleArgumentParser):
    """A parser that raises argparse.ArgumentError wherever argparse would end the process."""

    def error(self, message: str) -> NoReturn:
        raise argparse.ArgumentError(None, message)


@cache
def engine_parser() -> RaisingParser:
    """Return the parser of the installed vLLM."""
    parser = RaisingParser(add_help=False, exit_on_error=False)
    AsyncEngineArgs.add_cli_args(parser)
    return parser


@cache
def declarations() -> Mapping[str, argparse.Action]:
    """Return the declarations of all engine arguments by name, which argparse does not make public:

    https://github.com/python/cpython/blob/main/Lib/argparse.py
    """
    return {action.dest: action for action in engine_parser()._actions}


def argument_names() -> frozenset[str]:
    """Return the names of all engine arguments, as `option.*` keys name them."""
    return frozenset(declarations())


def engine_arguments(given: Mapping[str, str], gpus: Sequence[int] = ()) -> AsyncEngineArgs:
    """Return the arguments of vLLM's engine on these GPUs, or on the first ones that vLLM finds.

    Raise ConfigurationError for a value that vLLM refuses.
    """
    values = argparse.Namespace()
    if given.get("tensor_parallel_size") == MAX:
        given = {**given, "tensor_parallel_size": str(len(gpus) or max(1, current_platform.device_count()))}
    for name, value in given.items():
        # Each argument is parsed separately, so that errors refer to it.
        words = [*_words(declarations()[name], name, value)]
        try:
            engine_parser().parse_args(words, values)
        except argparse.ArgumentError as error:
            raise ConfigurationError(f"option.{name}: {' '.join(error.message.split())}") from error
    arguments = AsyncEngineArgs.from_cli_args(engine_parser().parse_args([], values))
    if gpus and [*gpus] != [*range(current_platform.device_count())]:  # it has no numbers for parts of GPUs (MIG)
        arguments.device_ids = [*gpus]
    if arguments.speculative_config is None:  # vLLM accepts only one of the two
        arguments.logits_processors = [*(arguments.logits_processors or ()), *LOGITS_PROCESSORS]
    return arguments


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
