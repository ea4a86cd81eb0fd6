"""The text of docs/how_to/coming_from_djl.md, from the declarations of keys, variables and routes."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from lmi_core.backend import Backend
from lmi_core.configuration.keys_without_effect import KEYS_WITHOUT_EFFECT
from lmi_core.configuration.properties import OPTION_PREFIX, DeclaredKey, RequestProperties, ServerProperties, declared
from lmi_core.plugins.loading import Plugins
from lmi_core.script.djl_names.modules import MISSING_MODULES, MISSING_PACKAGES, PRESENT_MODULES
from tools.docs.container import tables
from tools.docs.djl_names import ANSWERED_ROUTES, DJL_KEYS, OTHER_ROUTES

_HEADING = """\
# Coming from DJLServing

`lmi serve DIR` serves a model directory of DJLServing or of an LMI container without changes. This page lists every
key, variable, route and module of their documentation, test suite and containers, with its effect here. `lmi check DIR`
shows the same for one directory: the effective values, and a warning for each key that is unknown or has no effect.
With `--strict` such a warning is an error. [Install](install.md) has the extras that some keys need.
"""


class Reader(NamedTuple):
    """The declaration of a key, and the backend that declares it; no name where all do."""

    key: DeclaredKey
    backend: str | None


def document(plugins: Plugins) -> str:
    """Return the text of docs/how_to/coming_from_djl.md."""
    return "\n".join([_HEADING, *_keys(plugins), *_variables(), *_routes(plugins), *_imports()])


def _keys(plugins: Plugins) -> Iterator[str]:
    readers = _readers(plugins)
    yield "## Keys of `serving.properties`\n"
    yield "[options.md](../reference/options.md) has types and defaults. Backends are named where they differ.\n"
    yield "| key | effect |\n|---|---|"
    for key in DJL_KEYS:
        yield _row(f"`{key}`", what_becomes_of(key, readers))
    yield ""


def _variables() -> Iterator[str]:
    found = tables()
    yield "## Variables of containers\n"
    yield (
        "`OPTION_<KEY>` is `option.<key>`, and `SERVING_<KEY>` is `<key>`; [options.md](../reference/options.md)\n"
        "lists the short names of some keys too, such as `HF_MODEL_ID`. [container.md](container.md) describes how a\n"
        "container starts.\n"
    )
    yield found["variables"]
    yield "## Keys of `config.properties`\n"
    yield found["keys"]


def _routes(plugins: Plugins) -> Iterator[str]:
    summaries = {f"{route.method} {route.path}": route.summary for each in plugins.handlers for route in each.routes}
    yield "## Routes\n"
    yield "[api.md](../reference/api.md) describes requests and answers, and every other route.\n"
    yield "| route | effect |\n|---|---|"
    yield _row("`GET /ping`", "200 when every model is ready, 503 while one is loading or unhealthy.")
    for route in ANSWERED_ROUTES[1:]:
        yield _row(f"`{route}`", f"{summaries[route]}.")
    for route, reason in OTHER_ROUTES.items():
        yield _row(f"`{route}`", f"404: {reason}.")
    yield ""


def _imports() -> Iterator[str]:
    yield "## Imports of `model.py`\n"
    yield (
        "The server does not start if `model.py` imports a module that is missing; the error has the line and the "
        "reason: [djl_python.md](../reference/djl_python.md).\n"
    )
    yield "| module | effect |\n|---|---|"
    for module, meaning in PRESENT_MODULES.items():
        yield _row(f"`{module}`", f"Available: {meaning}.")
    for module, reason in {**MISSING_MODULES, **MISSING_PACKAGES}.items():
        yield _row(f"`{module}`", f"Missing: {reason}.")
    yield ""


def what_becomes_of(key: str, readers: Mapping[str, list[Reader]]) -> str:
    """Return the effect of a key in a sentence or two. Raise KeyError where it is neither read nor explained."""
    found = readers.get(key, [])
    if not found:
        return f"No effect: {KEYS_WITHOUT_EFFECT[key]}."
    by_text: dict[str, list[str]] = {}
    for reader in found:
        by_text.setdefault(_text(reader.key, key), []).append(reader.backend or "")
    return " ".join(_of_backends(text, names) for text, names in by_text.items())


def _text(declared_key: DeclaredKey, key: str) -> str:
    if declared_key.no_effect is not None and not declared_key.no_effect.except_for:
        return f"No effect: {declared_key.no_effect.reason}."
    return declared_key.help if key == declared_key.key else f"Read as `{declared_key.key}`. {declared_key.help}"


def _of_backends(text: str, names: Iterable[str]) -> str:
    named = ", ".join(sorted(name for name in names if name))
    return f"{named}: {text}" if named else text


def _readers(plugins: Plugins) -> dict[str, list[Reader]]:
    """Return the declarations of each key; one shared by all backends, or by the server, appears once."""
    readers: dict[str, list[Reader]] = {}
    for properties_type in (ServerProperties, RequestProperties):
        for key in declared(properties_type):
            for name in (key.key, *key.aliases):
                readers.setdefault(name, []).append(Reader(key, None))
    backends = list(plugins.backends)
    for backend in backends:
        for name, reader in _of_backend(backend):
            readers.setdefault(name, []).append(reader)
    return {name: _shared(found, len(backends)) for name, found in readers.items()}


def _of_backend(backend: type[Backend[Any]]) -> Iterator[tuple[str, Reader]]:
    declared_keys = declared(backend.properties_type)
    for key in declared_keys:
        for name in (key.key, *key.aliases):
            yield name, Reader(key, backend.name)
    spoken_for = {name for key in declared_keys for name in (key.key, *key.aliases)}
    for name in {OPTION_PREFIX + argument for argument in backend.known_engine_arguments()} - spoken_for:
        yield name, Reader(_engine_argument(name), backend.name)


def _engine_argument(key: str) -> DeclaredKey:
    help_text = "Passed to vLLM as an engine argument, or as its replacement ([vllm.md](../reference/vllm.md))."
    return DeclaredKey("", key, (), (), "", "", help_text)


def _shared(found: list[Reader], count: int) -> list[Reader]:
    texts = {reader.key.help for reader in found}
    return [Reader(found[0].key, None)] if len(found) == count and len(texts) == 1 else found


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
