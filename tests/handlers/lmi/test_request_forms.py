"""LMI's requests as v0.28 takes them beside JSON, and with an output formatter of their own."""

import pytest

from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve

PROMPT = "What is Deep Learning?"
TEXT = "Deep Learning is a really cool field."


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED}))


@pytest.mark.parametrize(
    ("name", "content_type"),
    [("json", "application/json"), ("jsonlines", "application/jsonlines"), ("sse", "text/event-stream")],
)
async def test_output_formatter_of_a_request(server: RunningServer, name: str, content_type: str) -> None:
    parameters = {"output_formatter": name, "max_new_tokens": 2}
    for stream in (False, True):
        answer = await server.post("/invocations", {"inputs": PROMPT, "parameters": parameters, "stream": stream})
        assert (answer.status, answer.content_type) == (200, content_type)
        assert "X-Lmi-Ignored-Parameters" not in answer.headers


async def test_output_formatter_of_a_request_that_is_unknown(server: RunningServer) -> None:
    answer = await server.post("/invocations", {"inputs": PROMPT, "parameters": {"output_formatter": "xml"}})
    assert (answer.status, "output_formatter" in answer.json()["error"]) == (424, True)


async def test_messages_that_are_null_make_no_chat(server: RunningServer) -> None:
    answer = await server.post("/invocations", {"inputs": PROMPT, "messages": None})
    assert (answer.status, answer.json()) == (200, {"generated_text": TEXT})


async def test_csv(server: RunningServer) -> None:
    headers = {"Content-Type": "text/csv"}
    body = f'id,inputs\n1,"{PROMPT}, really?"\n'
    answer = await server.post("/invocations", data=body.encode(), headers=headers)
    assert (answer.status, answer.json()) == (200, {"generated_text": TEXT})
    assert server.scripted.history[-1].prompt == f"{PROMPT}, really?"
    for wrong in ("text\nHey\n", "inputs\none\ntwo\n"):
        assert (await server.post("/invocations", data=wrong.encode(), headers=headers)).status in (400, 424)
