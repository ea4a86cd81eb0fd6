"""Ollama's names of models: `hello`, `hello:latest` and `Hello` are equal."""

from collections.abc import Iterable

from lmi_core.errors import ModelNotFound
from lmi_core.served_model import ServedModels

HOST = "registry.ollama.ai/"  # the host and the namespace of names without them
NAMESPACE = "library/"
TAG = ":latest"


def find_name(given: str, names: Iterable[str]) -> str | None:
    """Return the matching name, or None."""
    names = list(names)
    return given if given in names else next((name for name in names if _whole(name) == _whole(given)), None)


def with_tag(name: str) -> str:
    """Return the name in the form of Ollama's lists."""
    return name if ":" in name else name + TAG


def served_name(given: str, models: ServedModels) -> str:
    """Return the matching name of a model or adapter. Raise ModelNotFound if there is none."""
    served = models.models.values()
    own = [name for model in served for name in model.names]
    adapters = [name for model in served for name in model.adapter_names]
    found = find_name(given, own) or find_name(given, adapters)
    if found is not None:
        return found
    try:
        models.find(given)  # a version of a model, named by the tag
    except ModelNotFound:
        raise not_found_error(given) from None
    return given


def not_found_error(given: str) -> ModelNotFound:
    """Return the error in Ollama's words, which clients recognise."""
    return ModelNotFound(f"model '{given}' not found")


def _whole(name: str) -> str:
    return with_tag(name.removeprefix(HOST).removeprefix(NAMESPACE)).casefold()
