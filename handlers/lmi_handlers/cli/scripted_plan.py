"""A model's plan with the scripted backend instead of its own."""

from dataclasses import replace

from lmi_core.backend import BackendSetup
from lmi_core.plugins.loading import Plugins
from lmi_core.serving.model_plan import ModelPlan

SCRIPTED = "scripted"
DEFAULT_PROMPT = "What is Deep Learning?"
DELAY = 0.01  # seconds between tokens, so that each is a separate chunk


def scripted_plan(plan: ModelPlan, plugins: Plugins, text: str | None) -> ModelPlan:
    """Return the plan with the scripted backend, which answers with the text; plans with a model function stay
    unchanged.
    """
    if plan.backend is None or (plan.backend.name == SCRIPTED and text is None):
        return plan
    backend = plugins.backends.get(SCRIPTED)
    properties = backend.properties_type.model_validate(
        {"scripted_delay": DELAY} | ({} if text is None else {"scripted_text": text})
    )
    return replace(plan, backend=backend, setup=BackendSetup(plan.directory, properties, {}, 0))


def prompt_body(route: str, prompt: str) -> dict[str, object]:
    """Return the request body for the prompt in the schema of the route."""
    if "chat" in route:
        return {"messages": [{"role": "user", "content": prompt}]}
    if route.startswith("/v1/"):
        return {"prompt": prompt}
    return {"text_input" if route.startswith("/v2/") else "inputs": prompt}
