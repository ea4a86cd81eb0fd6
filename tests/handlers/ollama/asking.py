"""Helpers for questions in Ollama's dialect to a scripted model."""

from typing import Any

from lmi_core.generation.parameters import ExtendedParameters
from tests.conftest import Answer, RunningServer

TEXT = "Deep Learning is a really cool field."
WORDS = ["Deep", " Learning", " is", " a", " really", " cool", " field."]
PROMPT = "What is Deep Learning?"
MESSAGES = [{"role": "user", "content": PROMPT}]
DURATIONS = ("total_duration", "load_duration", "prompt_eval_duration", "eval_duration")
WHOLE = {"stream": False}


async def generate(server: RunningServer, **fields: Any) -> Answer:
    return await server.post("/api/generate", {"model": "model", "prompt": PROMPT} | fields)


async def chat(server: RunningServer, **fields: Any) -> Answer:
    return await server.post("/api/chat", {"model": "model", "messages": MESSAGES} | fields)


def parameters(server: RunningServer) -> ExtendedParameters:
    """Return the parameters of the backend's latest request."""
    latest = server.scripted.history[-1].parameters
    assert isinstance(latest, ExtendedParameters)
    return latest


def without_times(line: dict[str, Any]) -> dict[str, Any]:
    """Return the object of an answer without what differs each time."""
    return {name: value for name, value in line.items() if name not in ("created_at", *DURATIONS)}
