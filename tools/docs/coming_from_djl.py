"""The text of docs/how_to/coming_from_djl.md, from the declarations of keys, variables and routes."""

import importlib
import textwrap
from collections.abc import Iterable, Iterator, Mapping

from lmi_core.configuration.keys_without_effect import KEYS_WITHOUT_EFFECT
from lmi_core.configuration.properties import (
    OPTION_PREFIX,
    DeclaredKey,
    Properties,
    RequestProperties,
    ServerProperties,
    keys_of,
)
from lmi_core.plugins.loading import Plugins
from lmi_core.script.djl_names.modules import MISSING_MODULES, MISSING_PACKAGES, present_modules
from tools.docs.djl_names import ANSWERED_ROUTES, DJL_KEYS, OTHER_ROUTES

_HEADING = """\
# Coming from DJLServing

`lmi serve DIR` serves a model directory of DJLServing or of an LMI container unchanged. `lmi check DIR` shows the
effective values, and warns of each key that is unknown or has no effect; `--strict` makes these warnings errors. Some
keys need [an extra](install.md). To replace a container, read [container.md](container.md) too.
"""
_PACKAGES = """\
## Packages of `model.py`

LMI's containers install a `requirements.txt`; here `option.enable_venv=true` does, into an environment of the model's
own. Without it, `lmi check` and the log warn of packages that are missing or have another version. A `model.py` that
was written for transformers 4 may need this, with `transformers<5` in `requirements.txt`: transformers 5 has, for
example, no `batch_encode_plus`, and its `apply_chat_template` returns a dictionary instead of token ids.
"""

# The effect of a key that every engine reads under its own name.
_READ = "Read."
_UNBROKEN = "\N{NO-BREAK SPACE}"
_ENGINE_ARGUMENT = "Passed to vLLM as an engine argument, or as its replacement ([vllm.md](../reference/vllm.md))."
_ENGINES = {"lmi-dist", "torch", "trtllm", "vllm"}


# The backends that have each effect of a key, by its words.
Effects = Mapping[str, set[str]]


def document(plugins: Plugins) -> str:
    """Return the text of docs/how_to/coming_from_djl.md."""
    return "\n".join([_HEADING, *_keys(plugins), *_variables(), *_routes(), _PACKAGES, *_imports()])


def _keys(plugins: Plugins) -> Iterator[str]:
    effects = _effects(plugins)
    keys = _by_text({key: effect(key, effects) for key in DJL_KEYS})
    yield "## Keys of `serving.properties`\n"
    yield "Every engine reads these keys, which [options.md](../reference/options.md) describes:\n"
    yield _paragraph(keys.pop(_READ))
    yield "The others have another effect or none, or depend on the backend:\n"
    yield from _table(("key", "effect"), keys)


def _variables() -> Iterator[str]:
    yield "## Variables and `config.properties`\n"
    yield (
        "`OPTION_<KEY>` is `option.<key>`, and `SERVING_<KEY>` is `<key>`; [options.md](../reference/options.md)\n"
        "lists the short names, such as `HF_MODEL_ID`. [container.md](container.md) lists\n"
        "the [keys of `config.properties`](container.md#keys-of-configproperties) and the\n"
        "[other variables](container.md#environment-variables).\n"
    )


def _routes() -> Iterator[str]:
    yield "## Routes\n"
    yield (
        "These routes are served. [api.md](../reference/api.md) describes them, and\n"
        "[management.md](../reference/management.md) those that load and change models:\n"
    )
    yield _paragraph(ANSWERED_ROUTES)
    for route, reason in OTHER_ROUTES.items():
        yield f"`{route}` answers 404: {reason}.\n"
    yield (
        "Answers are not paginated: even with `x-synchronous: false`, the whole answer is sent at once. It has no\n"
        "`x-next-token`, so clients know that it is complete.\n"
    )


def _imports() -> Iterator[str]:
    yield "## Imports of `model.py`\n"
    yield "[djl_python.md](../reference/djl_python.md) describes how these modules are used:\n"
    yield "| module | contents |\n|---|---|"
    for module in present_modules():
        yield _row(_code([module]), str(importlib.import_module(module).__doc__).partition("\n")[0].rstrip("."))
    yield ""
    yield (
        "If `model.py` imports one of the following, the server does not start, and prints the line with the reason.\n"
    )
    yield from _table(("missing module", "reason, or replacement"), _by_text({**MISSING_MODULES, **MISSING_PACKAGES}))


def _by_text(texts: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the names with each text, in the order of their first names."""
    names: dict[str, list[str]] = {}
    for name, text in texts.items():
        names.setdefault(text, []).append(name)
    return names


def _table(heading: tuple[str, str], names: Mapping[str, list[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heading)} |\n|---|---|"
    for text, named in names.items():
        yield _row(_code(named), text)
    yield ""


def _paragraph(names: Iterable[str]) -> str:
    """Return the names in wrapped lines, none of which breaks within a name."""
    text = f"{_code(name.replace(' ', _UNBROKEN) for name in names)}.\n"
    return textwrap.fill(text, 118, break_long_words=False, break_on_hyphens=False).replace(_UNBROKEN, " ") + "\n"


def _code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def effect(key: str, effects: Mapping[str, Effects]) -> str:
    """Return the effect of a key in a sentence or two. Raise KeyError where it is neither read nor explained."""
    if key not in effects:
        return f"No effect: {KEYS_WITHOUT_EFFECT[key]}."
    return " ".join(
        text if names >= _ENGINES else f"{', '.join(sorted(names))}: {text}" for text, names in effects[key].items()
    )


def _effects(plugins: Plugins) -> dict[str, dict[str, set[str]]]:
    """Return the effects of each key. The server reads its own keys whatever the backend."""
    effects: dict[str, dict[str, set[str]]] = {}
    types: list[tuple[type[Properties], set[str]]] = [(ServerProperties, _ENGINES), (RequestProperties, _ENGINES)]
    for properties_type, names in [
        *types,
        *((backend.properties_type, {backend.name}) for backend in plugins.backends),
    ]:
        for declared_key in keys_of(properties_type):
            for key in (declared_key.key, *declared_key.aliases):
                effects.setdefault(key, {}).setdefault(_text(declared_key, key), set()).update(names)
    for backend in plugins.backends:
        for key in {OPTION_PREFIX + argument for argument in backend.known_engine_arguments()}:
            if not any(backend.name in names for names in effects.get(key, {}).values()):
                effects.setdefault(key, {}).setdefault(_ENGINE_ARGUMENT, set()).add(backend.name)
    return effects


def _text(declared_key: DeclaredKey, key: str) -> str:
    if declared_key.no_effect is not None and declared_key.no_effect.reason in declared_key.help:
        return f"No effect: {declared_key.no_effect.reason}."
    return _READ if key == declared_key.key else f"Read as `{declared_key.key}`."


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
