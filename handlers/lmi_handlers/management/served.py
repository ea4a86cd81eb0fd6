"""The registry of a server's models, which is hidden from dialects."""

from lmi_core.registry.dispatcher import Dispatcher
from lmi_core.registry.model_registry import ModelRegistry
from lmi_core.served_model import ServedModels


def registry_of(served: ServedModels) -> ModelRegistry:
    """Return the registry of a server's models."""
    assert isinstance(served, Dispatcher), served
    return served.registry
