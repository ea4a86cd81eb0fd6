"""Helpers for chats with a scripted model in OpenAI's dialect."""

from typing import Any

import orjson

from tests.conftest import SCRIPTED, Answer, ModelDirectory, RunningServer, Serve

PATH = "/v1/chat/completions"
TEXT = "Deep Learning is a really cool field."
WORDS = ["Deep", " Learning", " is", " a", " really", " cool", " field."]
MESSAGES = [{"role": "system", "content": "You are a helpful assistant."}, {"role": "user", "content": "Hi"}]
PROMPT = "system: You are a helpful assistant.\nuser: Hi\nassistant:"
USAGE = {"prompt_tokens": 9, "completion_tokens": 7, "total_tokens": 16}
# Members that are null unless they have a value, as in vLLM's answers.
EMPTY_MESSAGE = dict.fromkeys(("refusal", "annotations", "audio", "function_call", "reasoning", "reasoning_content"))
EMPTY_CHOICE = dict.fromkeys(("token_ids", "routed_experts"))
EMPTY_PROMPT = dict.fromkeys(("prompt_logprobs", "prompt_token_ids"))
EMPTY_ANSWER = dict.fromkeys(("service_tier", "kv_transfer_params", "ec_transfer_params", "metrics"))
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": MESSAGES},
    "/v1/completions": {"prompt": "Hi"},
    "/invocations": {"messages": MESSAGES},
}


async def serve_with(serve: Serve, model_dir: ModelDirectory, properties: str) -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED + properties}))


async def chat(server: RunningServer, headers: dict[str, str] | None = None, **fields: Any) -> Answer:
    return await server.post(PATH, {"messages": MESSAGES} | fields, headers=headers)


def events(answer: Answer) -> list[Any]:
    """Return the JSON events of a stream, asserting that it ended with `[DONE]`."""
    assert answer.content_type == "text/event-stream"
    *written, done, nothing = answer.body.split(b"\n\n")
    assert (done, nothing) == (b"data: [DONE]", b"")
    assert all(event.startswith(b"data: ") and b"\n" not in event for event in written)
    return [orjson.loads(event.removeprefix(b"data: ")) for event in written]


async def ask(server: RunningServer, path: str, **fields: Any) -> Answer:
    return await server.post(path, BODIES[path] | fields)
