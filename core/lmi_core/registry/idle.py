"""The time after which a model that nobody uses is unloaded."""

from lmi_core.registry.registered_model import ModelState, RegisteredModel


def seconds_until_idle(registered: RegisteredModel) -> float | None:
    """Return the time until a model has been unused for its `max_idle_time`; None where it is to stay loaded."""
    model = registered.model
    if model is None or not model.server.unload_idle or registered.state is not ModelState.READY:
        return None
    return model.server.max_idle_time - model.usage.unused_seconds
