"""vLLM's own parser of engine arguments, with what it declares of each argument."""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NoReturn

from lmi_plugins.vllm_engine.library import AsyncEngineArgs, FlexibleArgumentParser


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
    """The parser of all engine arguments, and what it declares of each by name."""

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
