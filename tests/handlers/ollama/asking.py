"""Helpers for questions in Ollama's dialect to a scripted model."""

from typing import Any

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


def without_times(line: dict[str, Any]) -> dict[str, Any]:
    """Return the object of an answer without what differs each time."""
    return {name: value for name, value in line.items() if name not in ("created_at", *DURATIONS)}
