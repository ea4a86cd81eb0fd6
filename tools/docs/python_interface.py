"""The text of docs/reference/python.md, from docstrings and signatures, by griffe2md."""

import re
from collections.abc import Iterator
from pathlib import Path

import griffe
from griffe2md import ConfigDict, default_config, render_object_docs

from lmi_core import errors
from lmi_handlers.base.statuses import STATUSES
from tools.docs.public_interface import MODULES, collection, public_members, public_objects

HEAD = """\
# The Python interface

The names in `lmi` and `lmi.testing`, for authors of backends, formatters, dialects, a `model.py` and tests: each with
its signature and its public members. [Plugins](../how_to/plugins.md) and [testing](../how_to/testing.md) describe how
to use them. This interface changes only as [CONTRIBUTING.md](../../CONTRIBUTING.md#releases) promises; other modules
may change in any release. `make docs` writes this page.
"""
INVALID_STATUS = 400
ERRORS = "Errors"
TESTS = "Tests"
# Each section has what the modules with these names define.
SECTIONS = {
    "Hooks": ("lmi_core.hookspecs",),
    "Backends": (
        "lmi_core.backend",
        "lmi_core.text_backend",
        "lmi_core.configuration",
        "lmi_core.serving_runtime",
        "lmi_core.metrics",
    ),
    "Parameters of requests": ("lmi_core.generation.parameters", "lmi_core.generation.parameters"),
    "Requests, and what is generated": ("lmi_core.generation.request", "lmi_core.generation.output"),
    "Tokenizers": ("lmi_core.generation.tokenizer", "lmi_core.texts.token_stream", "lmi_core.texts.word_tokenizer"),
    "Formatters": ("lmi_core.formatter", "lmi_core.decorators", "lmi_core.script.formatters"),
    "Dialects": (
        "lmi_core.handler",
        "lmi_core.served_model",
        "lmi_core.calls",
        "lmi_core.payloads",
        "lmi_handlers.http",
        "lmi_handlers.base",
        "lmi_handlers.fields.request_headers",
    ),
    "Chats": (
        "lmi.chat_requests",
        "lmi_core.generation.chat",
        "lmi_core.generation.images",
        "lmi_core.parsing",
        "lmi_core.texts",
        "lmi_handlers.chat",
        "lmi_handlers.fields",
    ),
    "Vectors": ("lmi_core.embedding_backend", "lmi_core.embedding_call", "lmi_core.generation.embedding_request"),
    "Tensors": ("lmi_core.generation.tensors", "lmi_core.inference"),
    ERRORS: ("lmi_core.errors",),
    "Without a server": ("lmi_handlers.offline", "lmi", "lmi_core"),
}
TRAILING = re.compile(r"  # (.+)$")
ABOVE = re.compile(r"^ *# (.+)$")
DESCRIPTION = re.compile(r"""description=(["'])(.*)\1,?\s*\)$""")
SIGNATURE = re.compile(r"^###+ `.+`$", re.MULTILINE)
NAME = re.compile(r"\w+")
STYLE: ConfigDict = {
    **default_config,
    "docstring_style": None,
    "heading_level": 3,
    "line_length": 120,
    "members_order": "alphabetical",  # lines of inherited members lie in several files
    "separate_signature": False,
    "show_bases": False,
    "show_object_full_path": False,
    "show_root_full_path": False,
    "show_root_members_full_path": False,
    "show_signature_annotations": True,
    "summary": False,
}


def document() -> str:
    """Return the page."""
    sections = {title: [] for title in [*SECTIONS, TESTS]}  # type: dict[str, list[str]]
    for module in MODULES:
        for name, found in public_objects(module).items():
            section = TESTS if module != MODULES[0] else _section(found.path)
            sections[section].append(_entry(name, found))
    pages = [f"## {title}\n\n{_introduction(title)}" + "\n\n".join(texts) for title, texts in sections.items() if texts]
    text = "\n\n".join([HEAD, *pages]).replace("\n\n\n", "\n\n").rstrip() + "\n"
    aliases = _aliases()
    return SIGNATURE.sub(lambda line: NAME.sub(lambda name: aliases.get(name[0], name[0]), line[0]), text)


def _aliases() -> dict[str, str]:
    """Return the values of type aliases in signatures that the page does not describe, by name."""
    kinds = [kind for module in MODULES for found in public_objects(module).values() for kind in _annotations(found)]
    names = [part for kind in kinds if isinstance(kind, griffe.Expr) for part in kind.iterate()]
    return {str(name): _spell_out(name) for name in names if _value_of(name)}


def _annotations(found: griffe.Object) -> Iterator[str | griffe.Expr | None]:
    if isinstance(found, griffe.Class):
        for member in public_members(found).values():
            yield from _annotations(member)
    elif isinstance(found, griffe.Function):
        yield from [found.returns, *(parameter.annotation for parameter in found.parameters)]
    elif isinstance(found, griffe.Attribute):
        yield found.annotation


def _spell_out(kind: str | griffe.Expr) -> str:
    """Return a type with the values of its aliases, and without the checks of `Annotated`."""
    if isinstance(kind, griffe.ExprSubscript) and str(kind.left) == "Annotated":
        assert isinstance(kind.slice, griffe.ExprTuple)
        return _spell_out(kind.slice.elements[0])
    if isinstance(kind, str):
        return kind
    parts = [(part, _value_of(part)) for part in kind.iterate()]
    return "".join([str(part) if value is None else _spell_out(value) for part, value in parts])


def _value_of(name: str | griffe.Expr) -> str | griffe.Expr | None:
    """Return the value of an alias, unless it is public or a type variable; None for anything else."""
    path = name.canonical_path if isinstance(name, griffe.ExprName) else ""
    if not path.startswith("lmi") or path in {each.path for each in public_objects("lmi").values()}:
        return None
    found = collection()[path]
    target = found.final_target if isinstance(found, griffe.Alias) else found
    if not isinstance(target, griffe.Attribute) or isinstance(target.value, griffe.ExprCall):
        return None
    return target.value


def _section(path: str) -> str:
    return next(title for title, homes in SECTIONS.items() if any(path.startswith(f"{home}.") for home in homes))


def _introduction(title: str) -> str:
    return f"{_errors()}\n\n" if title == ERRORS else ""


def _errors() -> str:
    """Return the table of errors, each with the status that dialects answer it with unless theirs has another."""
    found = [getattr(errors, name) for name in public_objects("lmi") if hasattr(errors, name)]
    rows = [f"| `{each.__name__}` | `{each.kind}` | {STATUSES.get(each.kind, INVALID_STATUS)} |" for each in found]
    return "\n".join(
        [
            "Every failure is one of these. `kind` is stable, and `message` is written for the person who caused it.",
            "A dialect's `error` maps each to a status; the table lists the usual one, from `STATUSES` or 400.",
            "",
            "| error | `kind` | usual status |",
            "|---|---|---|",
            *rows,
        ]
    )


def _entry(name: str, found: griffe.Object) -> str:
    """Return what the page has on a name."""
    if isinstance(found, griffe.Attribute):
        text = found.docstring.value if found.docstring else _comment(found)
        return f"### `{name}`\n\n{text}".rstrip()
    if isinstance(found, griffe.Class):
        for member in public_members(found).values():
            if isinstance(member, griffe.Attribute) and member.docstring is None and (text := _comment(member)):
                member.docstring = griffe.Docstring(text)
    text = render_object_docs(found, {**STYLE, "inherited_members": _members_of_others(found)}).strip()
    bases = [base for base in _public_bases(found) if base != name]
    heading, _, rest = text.partition("\n")
    return "\n".join([heading, *(["", f"A subclass of `{bases[0]}`."] if bases else []), rest])


def _public_bases(found: griffe.Object) -> list[str]:
    names = {each.path: name for name, each in public_objects("lmi").items()}
    bases = found.mro() if isinstance(found, griffe.Class) else []
    return [names[base.path] for base in bases if base.path in names]


def _members_of_others(found: griffe.Object) -> list[str]:
    """Return the inherited members that no other public class has."""
    if not isinstance(found, griffe.Class):
        return []
    public = {each.path for each in public_objects("lmi").values()}
    members = {name: member for name, member in public_members(found).items() if member.parent is not found}
    return [name for name, member in members.items() if member.parent is None or member.parent.path not in public]


def _comment(attribute: griffe.Attribute) -> str:
    """Return what an attribute's own line, or the comment above it, says of it; or the description of a field."""
    if described := DESCRIPTION.search(str(attribute.value)):
        return str(described[2])
    if attribute.lineno is None or not isinstance(attribute.filepath, Path):
        return ""
    lines = attribute.filepath.read_text(encoding="utf-8").splitlines()
    trailing = TRAILING.search(lines[attribute.lineno - 1])
    above = reversed(list(_above(lines[: attribute.lineno - 1])))
    text = trailing[1] if trailing else " ".join(above)
    return f"{text[0].upper()}{text[1:].rstrip('.')}." if text else ""


def _above(lines: list[str]) -> Iterator[str]:
    for line in reversed(lines):
        found = ABOVE.match(line)
        if found is None:
            return
        yield found[1]
