"""Jinja's sandbox, set up as in transformers."""

import json
import marshal
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

from jinja2 import Template, nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

CACHED_TEMPLATES = 64


class GenerationBlocks(Extension):
    """`{% generation %}`, which marks the answers' tokens for training and changes nothing here."""

    tags = {"generation"}  # noqa: RUF012  (as the base class has it)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


@lru_cache(maxsize=CACHED_TEMPLATES)
def compile_template(template: str) -> Template:
    """Compile a template. Raise TemplateSyntaxError if it is not Jinja."""
    return _environment().from_string(template)


def renderer(_: str = "") -> Callable[[str, Mapping[str, Any], bytes | None], tuple[str, bytes | None]]:
    """Return the function that renders a template in a fork. If it gets no compiled code, it also returns the code."""
    environment = _environment()
    environment.from_string("{{ 1 }}")  # initializes the template compiler

    def render(template: str, variables: Mapping[str, Any], code: bytes | None) -> tuple[str, bytes | None]:
        known = code or marshal.dumps(environment.compile(template))
        found = Template.from_code(environment, marshal.loads(known), environment.make_globals(None))
        return found.render(variables), None if code else known

    return render


@lru_cache(maxsize=1)
def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationBlocks, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = lambda format: datetime.now().strftime(format)
    return environment


def _raise_exception(message: str) -> None:
    raise TemplateError(message)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Write JSON as transformers does, without the escapes for HTML of Jinja's own filter."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
