"""The text of docs/reference/cli.md, from the declarations of the commands."""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption
from typer.main import get_command

from lmi_handlers.cli.main import app

INTRODUCTION = """# Commands

`lmi COMMAND --help`, or `-h`, prints this reference, and `lmi --version` the version. Options may come before or after
arguments. Errors and warnings go to stderr, answers and tables to stdout. The warnings that `lmi check` finds are part
of its report on stdout.
[Install](../how_to/install.md) describes extras and shell completion.

| exit status | meaning |
|---|---|
| 0 | the command succeeded; `lmi serve` was stopped by Ctrl-C or SIGTERM |
| 1 | `lmi serve`: an engine crashed more often than `retry_threshold` allows; other commands: the request failed |
| 2 | the arguments, the environment or a model directory are invalid; the reason is on stderr |
"""
FORMS = "<!-- not run: forms of the command, with placeholders in capital letters -->"
VERBATIM = "\b"  # begins a paragraph whose lines stay as they are


def document() -> str:
    """Return the page: each command with its usage, its arguments and its options."""
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    sections = ("\n".join(_section(name, group.commands[name])) for name in group.list_commands(typer.Context(group)))
    return "\n".join([INTRODUCTION, *sections])


def _section(name: str, command: object) -> Iterator[str]:
    assert isinstance(command, TyperCommand)
    context = typer.Context(command, info_name=name)
    shown = [each for each in command.params if isinstance(each, TyperArgument | TyperOption) and not each.hidden]
    arguments = [each for each in shown if isinstance(each, TyperArgument)]
    options = [each for each in shown if isinstance(each, TyperOption)]
    yield f"## lmi {name}\n"
    yield f"`{' '.join(['lmi', name, *command.collect_usage_pieces(context)])}`\n"
    yield from _description(command.help or "")
    yield from _table("argument", (_argument_row(each) for each in arguments), some=bool(arguments))
    yield from _table("option", (_option_row(each, context) for each in options), some=bool(options))


def _description(text: str) -> Iterator[str]:
    for paragraph in text.split("\n\n"):
        lines = [line.strip() for line in paragraph.splitlines()]
        if paragraph.startswith(VERBATIM):
            block = paragraph.removeprefix(VERBATIM).strip("\n")
            yield f"{FORMS}\n```sh\n{block}\n```\n"
        else:
            yield " ".join(lines) + "\n"


def _table(heading: str, rows: Iterable[str], *, some: bool) -> Iterator[str]:
    if some:
        yield f"| {heading} | default | meaning |\n|---|---|---|"
        yield from rows
        yield ""


def _argument_row(argument: TyperArgument) -> str:
    return _row([_value_name(argument)], "", argument.help)


def _option_row(option: TyperOption, context: typer.Context) -> str:
    value = "" if option.is_flag else f" {_value_name(option)}"
    default = option.get_default(context)
    shown = "" if option.is_flag or default in (None, "") or not option.show_default else f"`{_plain(default)}`"
    return _row([f"{name}{value}" for name in option.opts], shown, option.help)


def _row(names: Iterable[str], default: str, text: str | None) -> str:
    return f"| {', '.join(f'`{_one_line(name)}`' for name in names)} | {default} | {_one_line(text or '')} |"


def _value_name(parameter: TyperArgument | TyperOption) -> str:
    """Return what stands for the value: its choices, or a word for it."""
    kind = parameter.type_descriptor.annotation
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return "|".join(kind)
    if isinstance(parameter, TyperArgument):
        return parameter.metavar or parameter.name.upper()
    return parameter.metavar or {str: "TEXT", Path: "FILE"}.get(kind, "NUMBER")


def _plain(value: object) -> str:
    return str(getattr(value, "value", value))


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
