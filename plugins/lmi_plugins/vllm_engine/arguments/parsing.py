"""Engine arguments as text, read by vLLM's own parser, so that each has the type that vLLM gives it."""

import argparse
import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import NoReturn

from lmi_core.errors import ConfigurationError
from lmi_plugins.backends.parallel_degrees import MAX
from lmi_plugins.vllm_engine.library import AsyncEngineArgs, FlexibleArgumentParser, current_platform
from lmi_plugins.vllm_engine.requests.logits_processors import LOGITS_PROCESSORS

BOOLEANS = {"true": True, "false": False}


class _Parser(FlexibleArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Raises ConfigurationError, with the flag as the option that it is."""
        found = re.match(r"argument --([\w-]+)\S*: ", message)
        if found is not None:
            message = f"option.{found[1].replace('-', '_')}: {message[found.end() :]}"
        raise ConfigurationError(" ".join(message.split()))


@cache
def engine_parser() -> FlexibleArgumentParser:
    return AsyncEngineArgs.add_cli_args(_Parser(add_help=False))


def argument_names() -> frozenset[str]:
    """As `option.*` keys name them."""
    return frozenset(action.dest for action in engine_parser()._actions)


def engine_arguments(given: Mapping[str, str]) -> AsyncEngineArgs:
    """Raises ConfigurationError for a value that vLLM does not take."""
    actions = {action.dest: action for action in engine_parser()._actions}
    words = [word for name, value in _resolved(given).items() for word in _words(actions[name], name, value)]
    arguments = AsyncEngineArgs.from_cli_args(engine_parser().parse_args(words))
    if arguments.speculative_config is None:  # vLLM has the one or the other
        arguments.logits_processors = [*(arguments.logits_processors or ()), *LOGITS_PROCESSORS]
    return arguments


def _resolved(given: Mapping[str, str]) -> dict[str, str]:
    if given.get("tensor_parallel_size") != MAX:
        return dict(given)
    return {**given, "tensor_parallel_size": str(max(1, current_platform.device_count()))}


def _words(action: argparse.Action, name: str, value: str) -> Iterable[str]:
    """One argument as it is on a command line."""
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
    return words[:1]  # none where a switch can only be turned on, and is off


def _items(name: str, value: str) -> list[str]:
    """A JSON array, or words between commas or blanks."""
    if not value.startswith("["):
        return value.replace(",", " ").split()
    try:
        return [item if isinstance(item, str) else json.dumps(item) for item in json.loads(value)]
    except ValueError as error:
        raise ConfigurationError(f"option.{name} must be a JSON array: {error}. Given: {value}") from None
