"""What clients send stays out of the log, and what the server is made of stays out of its answers."""

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from lmi_core.calls.answer_form import JSON
from lmi_handlers.testing.servers import RunningServer
from lmi_plugins.backends.scripted import Script
from tests.conftest import SCRIPTED
from tests.module_server import module_server

pytestmark = pytest.mark.asyncio(loop_scope="module")

SECRET = "s3cr3t-pa55phrase"
HEADERS = {"Authorization": f"Bearer {SECRET}", "x-api-key": SECRET, "Cookie": f"session={SECRET}", "X-Other": SECRET}
TRACES = ("Traceback", '.py"', "site-packages", "/lmi_", "object at 0x")
NAMES = ("model", "name", "lora_name")  # what does not exist is told by its name
MANAGEMENT = ("/models", "/api/pull", "/api/create", "/api/copy", "/api/push")  # of the operator's models
Place = tuple[str, dict[str, Any]]


TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"
server = module_server(f"{SCRIPTED}option.chat_template={TEMPLATE}\n")


def places(value: Any, secret: Any) -> Iterator[Any]:
    """Yield copies of the JSON, each with the secret at another place of it."""
    yield secret
    if isinstance(value, dict):
        for name, item in value.items():
            if name in NAMES:
                continue
            yield from ({**value, name: changed} for changed in places(item, secret))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from ([*value[:index], changed, *value[index + 1 :]] for changed in places(item, secret))


def bodies(document: dict[str, Any]) -> Iterator[Place]:
    """Yield each example of each route, with the secret in each of its places, and in members that it lacks."""
    for path, methods in document["paths"].items():
        content = methods.get("post", {}).get("requestBody", {}).get("content", {}).get(JSON)
        if content is None or path.startswith(MANAGEMENT):
            continue
        for name, value in {"model": "model", "version": "1", "endpoint": "mine", "name": "french"}.items():
            path = path.replace(f"{{{name}}}", value)
        for form in content["schema"].get("anyOf", [content["schema"]]):
            if "$ref" in form:
                schema = document["components"]["schemas"][form["$ref"].rpartition("/")[2]]
                example = schema["examples"][0]
                texts = [body for body in places(example, SECRET) if isinstance(body, dict)]
                others = [{**example, name: {"a": [SECRET]}} for name in (*schema.get("properties", {}), "unknown")]
                yield from [(path, body) for body in (*texts, *others)]


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO)  # what is logged by default
    return caplog


def logged(log: pytest.LogCaptureFixture) -> str:
    formatter = logging.Formatter("%(name)s %(message)s")  # with tracebacks
    return "\n".join(formatter.format(record) for record in log.records if not record.name.startswith("asyncio"))


async def test_secrets_in_every_member(server: RunningServer, log: pytest.LogCaptureFixture) -> None:
    document = (await server.get("/openapi.json")).json()
    tried = 0
    for path, body in bodies(document):
        tried += 1
        before = len(log.records)
        answer = await server.post(path, body, headers=HEADERS)
        text = answer.body.decode(errors="replace")
        assert not any(trace in text for trace in TRACES), (path, body, text)
        lines = [record.getMessage() + str(record.exc_text or record.exc_info or "") for record in log.records[before:]]
        assert not any(SECRET in line for line in lines), (path, body, lines)
    assert tried > 300
    assert SECRET not in logged(log)


@pytest.mark.parametrize(
    "path",
    [
        "/invocations?key={}",
        "/{}",
        "/v1/{}",
        "/predictions/{}",
        "/v2/models/{}/generate",
        "/v1/models/{}",
        "/models/model/adapters/{}",
        "/v1/responses/{}",
        "/ping?api_key={}",
    ],
)
async def test_secrets_in_the_address(server: RunningServer, log: pytest.LogCaptureFixture, path: str) -> None:
    for method in ("GET", "POST"):
        async with server.client.request(method, path.format(SECRET), headers=HEADERS, json={}) as response:
            text = await response.text()
        assert not any(trace in text for trace in TRACES), text
    query = [line for line in logged(log).splitlines() if "?" in line]
    assert query == []


@pytest.mark.parametrize("path", ["/invocations", "/v1/chat/completions", "/v1/completions", "/v1/messages", "/"])
@pytest.mark.parametrize("stream", [False, True])
async def test_what_fails_within(
    server: RunningServer, log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, path: str, stream: bool
) -> None:
    """An exception that nobody expected is in the log with its traceback, without the prompt, and not in the answer."""

    async def fail(*_: object) -> None:
        raise RuntimeError("the code of /opt/lmi failed")

    monkeypatch.setattr("lmi_handlers.http.answer.validate_all", fail)
    chat = [{"role": "user", "content": SECRET}]
    body: dict[str, Any] = {"messages": chat} if "chat" in path or "messages" in path else {"inputs": SECRET}
    body |= {"prompt": SECRET} if path.endswith("/completions") and "chat" not in path else {}
    answer = await server.post(path, body | {"max_tokens": 5, "stream": stream}, headers=HEADERS)
    text = answer.body.decode(errors="replace")
    assert "/opt/lmi" not in text
    assert not any(trace in text for trace in TRACES), text
    assert "the code of /opt/lmi failed" in logged(log)
    assert SECRET not in logged(log)


async def test_malformed_requests(server: RunningServer, log: pytest.LogCaptureFixture) -> None:
    secret = SECRET.encode()
    for data in (b'{"inputs": "' + secret, secret, b'{"' + secret + b'": NaN}', b"\xff" + secret):
        for path in ("/invocations", "/v1/chat/completions", "/v1/messages", "/api/chat", "/v2/models/model/infer"):
            answer = await server.post(path, data=data, headers={"Content-Type": "application/json", **HEADERS})
            assert 400 <= answer.status < 500
            assert not any(trace in answer.body.decode() for trace in TRACES)
    assert SECRET not in logged(log)


async def test_answers_are_not_logged(server: RunningServer, log: pytest.LogCaptureFixture) -> None:
    for path in ("/invocations", "/v1/completions"):
        for stream in (False, True):
            server.scripted.enqueue(Script(SECRET))
            answer = await server.post(path, {"inputs": "a", "prompt": "a", "stream": stream})
            assert SECRET in json.dumps(answer.body.decode())
    assert SECRET not in logged(log)
