"""The public interface as text: every name of `lmi`, with the signatures and fields that authors of plugins rely on."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import griffe

ROOT = Path(__file__).parents[2]
SOURCES = [ROOT / tree for tree in ("core", "handlers", "plugins")]
MODULES = ("lmi", "lmi.testing")
DESCRIPTION = re.compile(r",? ?description=.*(?=\)$)")  # of a pydantic field
RECORDS = ("NamedTuple", "msgspec.Struct")  # bases of classes whose fields are the parameters of their constructor


@cache
def collection() -> griffe.ModulesCollection:
    """Return the sources of all packages that `lmi` takes its names from, read without running them."""
    loader = griffe.GriffeLoader(search_paths=SOURCES, allow_inspection=False)
    for package in ("lmi_core", "lmi_handlers", "lmi_plugins", "lmi"):
        loader.load(package)
    loader.resolve_aliases(external=False)
    return loader.modules_collection


@cache
def public_objects(module: str) -> dict[str, griffe.Object]:
    """Return what each public name of a module stands for, by name."""
    return {name: target for name, member in sorted(collection()[module].members.items()) if (target := _ours(member))}


def _ours(member: griffe.Object | griffe.Alias) -> griffe.Object | None:
    """Return what a member is or stands for, unless it comes from elsewhere or is defined here for no one else."""
    if not isinstance(member, griffe.Alias):
        return None
    if not member.target_path.startswith("lmi"):
        return None
    found = member.final_target
    if isinstance(found, griffe.Class) and any(str(base) in RECORDS for base in found.bases):
        _add_constructor(found)
    return found


def _add_constructor(found: griffe.Class) -> None:
    """Add the `__init__` that the fields imply; griffe itself does so for dataclasses."""
    kind = griffe.ParameterKind.positional_or_keyword
    fields = [each for each in found.members.values() if isinstance(each, griffe.Attribute) and _is_field(each)]
    parameters = [
        griffe.Parameter(each.name, annotation=each.annotation, kind=kind, default=each.value) for each in fields
    ]
    this = griffe.Parameter("self", kind=kind)
    init = griffe.Function("__init__", parent=found, parameters=griffe.Parameters(this, *parameters), returns="None")
    found.set_member("__init__", init)


def _is_field(member: griffe.Attribute) -> bool:
    return member.annotation is not None and "property" not in member.labels


def interface() -> str:
    """Return one paragraph for each public name: its signature, and one line for each of its members."""
    names = [(module, name) for module in MODULES for name in public_objects(module)]
    return "\n\n".join("\n".join(_describe(*each)) for each in names) + "\n"


def _describe(module: str, name: str) -> Iterator[str]:
    found = public_objects(module)[name]
    if isinstance(found, griffe.Class):
        bases = ", ".join(str(base) for base in found.bases)
        yield f"class {module}.{name}({bases})" if bases else f"class {module}.{name}"
        yield from (f"    {line}" for line in _members(found))
    elif isinstance(found, griffe.Function):
        yield f"def {module}.{found.signature(return_type=True)}"
    else:
        assert isinstance(found, griffe.Attribute), found
        yield f"{module}.{name}: {found.annotation or found.value}"


def _members(found: griffe.Class) -> Iterator[str]:
    for name, member in sorted(public_members(found).items()):
        if isinstance(member, griffe.Function):
            kind = "async def" if "async" in member.labels else "def"
            marks = [f"@{label} " for label in ("classmethod", "staticmethod", "abstractmethod") if _is(member, label)]
            yield f"{''.join(marks)}{kind} {member.signature(return_type=True, name=name)}"
        elif isinstance(member, griffe.Attribute):
            yield _attribute(name, member)


def public_members(found: griffe.Class) -> dict[str, griffe.Object]:
    """Return the members that authors may use or define, inherited ones of this project's classes too."""
    members = {**found.inherited_members, **found.members}
    targets = {name: _target(member) for name, member in members.items() if name == "__init__" or name[0] != "_"}
    return {name: target for name, target in targets.items() if target is not None}


def _target(member: griffe.Object | griffe.Alias) -> griffe.Object | None:
    if isinstance(member, griffe.Alias):
        return member.final_target if member.target_path.startswith("lmi") else None
    return member


def _attribute(name: str, member: griffe.Attribute) -> str:
    kind = f": {member.annotation}" if member.annotation is not None else ""
    if "property" in member.labels:
        return f"@property {name}{kind}"
    if member.value is None or (not kind and "instance-attribute" in member.labels):  # set by `__init__`
        return name + kind
    return f"{name}{kind} = {DESCRIPTION.sub('', str(member.value))}"


def _is(member: griffe.Function, label: str) -> bool:
    return label in member.labels or any(str(each.value).endswith(label) for each in member.decorators)
