"""Errors about a request before a model sees it, with the members of DJLServing's front end."""

import pytest

from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED}))


def front_end(message: str, status: int, kind: str) -> dict[str, object]:
    """The error that DJLServing's front end would write, in LMI's form too."""
    return {"error": message, "code": status, "type": kind, "message": message}


async def test_errors_about_routes(server: RunningServer) -> None:
    unknown = await server.post("/prediction/model", {})
    assert (unknown.status, unknown.json()["type"]) == (404, "ResourceNotFoundException")
    wrong = await server.get("/invocations")
    assert (wrong.status, wrong.json()["type"]) == (405, "MethodNotAllowedException")
    for answer in (unknown, wrong):
        told = answer.json()
        assert (told["code"], told["message"]) == (answer.status, told["error"])
