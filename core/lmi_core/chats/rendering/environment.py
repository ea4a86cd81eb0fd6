"""Jinja's sandbox with a budget, in the form that transformers gives it."""

import json
from collections.abc import Callable, Iterable, Iterator, Sized
from datetime import datetime
from functools import wraps
from itertools import islice
from types import CodeType
from typing import Any, cast

from jinja2 import Environment, nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.filters import make_attrgetter
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import pass_context, pass_environment

from lmi_core.chats.rendering.budget import MAX_BITS, MAX_ITEMS, MAX_TEXT, TemplateTooCostlyError, budget
from lmi_core.chats.rendering.compiling import compile_program
from lmi_core.chats.rendering.growth import MAX_SORTED, check_growth, check_time_format

LOOP, COMPARED, MADE = "lmi loop", "lmi compared", "lmi made"  # filters, whose names no template can write
ENDLESS = ("lipsum",)  # texts at random, of any length
# Filters that look at items, and at nothing within them.
SHALLOW = frozenset(
    {"attr", "batch", "count", "d", "default", "first", "items", "last", "length", "list", "map", "reject",
     "rejectattr", "reverse", "select", "selectattr", "slice", LOOP, COMPARED, MADE}
)  # fmt: skip


class GenerationBlocks(Extension):
    """`{% generation %}`, which marks the answers' tokens for training and changes nothing here."""

    tags = {"generation"}  # noqa: RUF012  (as the base class has it)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """The environment of chat templates, in which every step and every text counts.

    Constants are not folded, as compiling has no budget.
    """

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[GenerationBlocks, loopcontrols],
            finalize=_walked,
            optimized=False,
        )
        self.concat = _concatenated  # type: ignore[method-assign]  # which compiled templates call for all that they collect
        for name in ENDLESS:
            del self.globals[name]
        self.globals |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now}
        self.filters |= {"tojson": _to_json, "sum": _sum}
        self.filters = {name: _bounded(name, each) for name, each in self.filters.items()}
        self.filters |= {LOOP: _loop, COMPARED: _walked, MADE: _made}

    # Jinja's own two steps of compiling a template, of which it documents the second as a hook. The tests of endless
    # templates fail if it no longer calls them: https://github.com/pallets/jinja/blob/main/src/jinja2/environment.py

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        return cast(nodes.Template, _with_checks(super()._parse(source, name, filename)))

    def _compile(self, source: str, filename: str) -> CodeType:
        return compile_program(source, filename)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Call what a template calls, which may be a method of a text."""
        budget().step()
        method = getattr(__obj, "__wrapped__", __obj)  # `format`, which the sandbox wraps
        subject = getattr(method, "__self__", None)
        if isinstance(subject, str | bytes):
            check_growth(method.__name__, subject, args, kwargs)
        elif method is _strftime_now:
            check_time_format(str(args[0] if args else kwargs))
        found = super().call(__context, __obj, *args, **kwargs)
        budget().value(found)
        return found

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        budget().step()
        if operator == "*":
            for one, other in ((left, right), (right, left)):
                if isinstance(one, int) and isinstance(other, str | bytes):
                    budget().text(len(other) * max(one, 0))
                elif isinstance(one, int) and isinstance(other, list | tuple):
                    budget().items(len(other) * max(one, 0))
        elif operator == "**" and isinstance(left, int) and isinstance(right, int):
            if left.bit_length() * abs(right) > MAX_BITS:
                raise TemplateTooCostlyError(f"it makes numbers of more than {MAX_BITS} bits")
        elif operator == "%" and isinstance(left, str):
            check_growth("format", left, right if isinstance(right, tuple) else (right,), {})
            budget().walk(right)
        found = super().call_binop(context, operator, left, right)
        budget().value(found)
        return found


def _with_checks(node: nodes.Node) -> nodes.Node:
    """Have filters check what no method of the environment sees: loops, comparisons, slices and joined texts."""
    for name, value in [*node.iter_fields()]:
        if isinstance(value, nodes.Node):
            setattr(node, name, _with_checks(value))
        elif isinstance(value, list):
            setattr(node, name, [_with_checks(each) if isinstance(each, nodes.Node) else each for each in value])
    if isinstance(node, nodes.For):
        node.iter = _filtered(cast(nodes.Expr, node.iter), LOOP)
    elif isinstance(node, nodes.Compare):
        node.expr = _filtered(node.expr, COMPARED)
        for each in node.ops:
            each.expr = _filtered(each.expr, COMPARED)
    elif isinstance(node, nodes.Concat):
        return _filtered(nodes.List(node.nodes, lineno=node.lineno), "join")
    elif isinstance(node, nodes.Getitem):
        return _filtered(node, MADE) if isinstance(node.arg, nodes.Slice) else node
    return node


def _filtered(node: nodes.Expr, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


def _bounded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    first = 1 if hasattr(function, "jinja_pass_arg") else 0  # what comes before the subject

    @wraps(function)
    def bounded(*args: Any, **kwargs: Any) -> Any:
        spent = budget()
        spent.step()
        if len(args) > first:
            subject, others = args[first], args[first + 1 :]
            if name == "join" and not isinstance(subject, str | list | tuple):
                subject = [*islice(subject, MAX_ITEMS + 1)]
                args = (*args[:first], subject, *others)
            elif name == "sort" and not isinstance(subject, Sized):
                subject = [*islice(subject, MAX_SORTED + 1)]
                args = (*args[:first], subject, *others)
            if name not in SHALLOW and not isinstance(subject, str):
                spent.walk(subject)
            check_growth(name, subject, others, kwargs)
            if name == "format":
                spent.walk([*others, *kwargs.values()])
        found = function(*args, **kwargs)
        spent.value(found)
        return found

    return bounded


@pass_context  # so that no constant is folded
def _loop(context: Context, iterable: Iterable[Any]) -> Iterator[Any]:
    spent = budget()
    for each in iterable:
        spent.step()
        yield each


@pass_context
def _walked(context: Context, value: Any) -> Any:
    if isinstance(value, list | tuple | dict):
        budget().walk(value)
    return value


@pass_context
def _made(context: Context, value: Any) -> Any:
    budget().value(value)
    return value


def _concatenated(pieces: Iterable[str]) -> str:
    spent, found, length = budget(), [], 0
    for piece in pieces:
        length += len(piece)
        if length > MAX_TEXT:
            break
        found.append(piece)
    spent.text(length)
    return "".join(found)


@pass_environment
def _sum(environment: Environment, iterable: Iterable[Any], attribute: str | int | None = None, start: Any = 0) -> Any:
    """Add what `start` begins; lists are joined at once, where Python would copy the sum for each of them."""
    added = iterable if attribute is None else map(make_attrgetter(environment, attribute), iterable)
    if not isinstance(start, list | tuple):
        return sum(added, start)
    spent, kind, found = budget(), type(start), [*start]
    for each in added:
        spent.step()
        if not isinstance(each, kind):
            return start + each  # which raises what Python says of it
        spent.items(len(found) + len(each))
        found += each
    return kind(found)


def _raise_exception(message: str) -> None:
    raise TemplateError(message)


def _strftime_now(format: str) -> str:
    return datetime.now().strftime(format)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Write JSON as transformers does, without the escapes for HTML of Jinja's own filter."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
