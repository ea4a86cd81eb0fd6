"""Requests to the management routes."""

from typing import Any
from urllib.parse import urlencode

from tests.conftest import Answer, RunningServer


async def ask(server: RunningServer, method: str, path: str, *, body: object = None, **query: object) -> Answer:
    """Send a management request with the query, in which True is `true`."""
    written = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in query.items()}
    url = f"{path}?{urlencode(written)}" if written else path
    async with server.client.request(method, url, json=body) as response:
        return Answer(response.status, response.headers, await response.read())


async def register(server: RunningServer, url: object, **query: object) -> Answer:
    return await ask(server, "POST", "/models", url=url, **query)


async def describe(server: RunningServer, model: str) -> dict[str, Any]:
    """Return the description of the only version of a model."""
    (workflow,) = (await ask(server, "GET", f"/models/{model}")).json()
    (found,) = workflow["models"]
    assert workflow["workflowName"] == found["modelName"] == model
    return dict(found)


async def generated(server: RunningServer, path: str, **body: object) -> str:
    """Return the text that a model generates, or the error."""
    answer = await server.post(path, {"inputs": "Hello", **body})
    return str(answer.json().get("generated_text", answer.json()))
