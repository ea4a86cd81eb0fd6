"""A backend's own parameters, in the requests of every dialect."""

from collections.abc import Iterator
from typing import Any

import openai
import pytest
from pydantic import Field

import lmi
from lmi_core.generation.parameters import GenerationParameters
from lmi_core.text_backend.backend import TextBackend
from lmi_handlers.testing.plain import PlainServer, plain_server
from tests.core.text_backend.test_served import Plugin

CHAT = {"messages": [{"role": "user", "content": "one"}]}
PLACES: dict[str, tuple[str, dict[str, Any], str]] = {  # the route, a request, and where it has parameters
    "lmi": ("/invocations", {"inputs": "one"}, "parameters"),
    "lmi chat": ("/invocations", CHAT, ""),
    "openai completions": ("/v1/completions", {"prompt": "one"}, ""),
    "openai chat": ("/v1/chat/completions", CHAT, ""),
    "openai responses": ("/v1/responses", {"input": "one"}, ""),
    "anthropic": ("/v1/messages", {**CHAT, "max_tokens": 9}, ""),
    "happy_vllm": ("/v1/generate", {"prompt": "one"}, ""),
    "ollama generate": ("/api/generate", {"model": "model", "prompt": "one", "stream": False}, "options"),
    "ollama chat": ("/api/chat", {"model": "model", **CHAT, "stream": False}, "options"),
    "tgi": ("/generate", {"inputs": "one"}, "parameters"),
    "triton": ("/v2/models/model/generate", {"text_input": "one"}, "parameters"),
}


class MoodParameters(GenerationParameters):
    mood: str = Field("plain", pattern="^[a-z]+$", description="How it is said.")
    volume: int = Field(1, ge=1, le=11, description="How loud it is.")


class MoodyBackend(TextBackend[Any]):
    name = "moody"
    parameters_type = MoodParameters

    def generate(self, prompt: str, parameters: MoodParameters) -> Iterator[str]:
        yield f"mood={parameters.mood} volume={parameters.volume}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlainServer]:
    directory = tmp_path_factory.mktemp("moody") / "model"
    directory.mkdir()
    (directory / "serving.properties").write_text("option.rolling_batch=moody\n")
    with plain_server(directory, [Plugin(MoodyBackend)]) as server:
        yield server


@pytest.fixture(scope="module")
def strict_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlainServer]:
    directory = tmp_path_factory.mktemp("strict") / "model"
    directory.mkdir()
    (directory / "serving.properties").write_text("option.rolling_batch=moody\noption.strict_parameters=true\n")
    with plain_server(directory, [Plugin(MoodyBackend)]) as server:
        yield server


def request(place: str, **parameters: object) -> tuple[str, dict[str, Any]]:
    route, body, where = PLACES[place]
    return route, {**body, **({where: parameters} if where else parameters)}


@pytest.mark.parametrize("place", PLACES)
def test_they_reach_the_backend(server: PlainServer, place: str) -> None:
    answer = server.post(*request(place, mood="loud", volume=11))
    assert answer.status == 200, answer.body
    assert "mood=loud volume=11" in answer.body.decode()
    assert "X-Lmi-Ignored-Parameters" not in answer.headers


@pytest.mark.parametrize("place", PLACES)
def test_strict_parameters_are_no_obstacle(strict_server: PlainServer, place: str) -> None:
    answer = strict_server.post(*request(place, mood="loud"))
    assert answer.status == 200, answer.body
    assert "mood=loud volume=1" in answer.body.decode()


@pytest.mark.parametrize("place", PLACES)
def test_wrong_values_are_refused(server: PlainServer, place: str) -> None:
    answer = server.post(*request(place, volume=12))
    assert 400 <= answer.status < 500
    assert "volume` must be less than or equal to 11. Given: 12" in answer.body.decode()


@pytest.mark.parametrize("place", [place for place in PLACES if place != "triton"])  # which has written values
def test_types_are_strict(server: PlainServer, place: str) -> None:
    answer = server.post(*request(place, volume="loud"))
    assert 400 <= answer.status < 500
    assert "volume` must be a valid integer. Given: 'loud'" in answer.body.decode()


@pytest.mark.parametrize("place", PLACES)
def test_unknown_ones_are_told(server: PlainServer, place: str) -> None:
    answer = server.post(*request(place, moood="loud"))
    assert (answer.status, answer.headers["X-Lmi-Ignored-Parameters"]) == (200, "moood")


def test_openai_s_client(server: PlainServer) -> None:
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    with client:
        messages: Any = CHAT["messages"]
        answer = client.chat.completions.create(model="model", messages=messages, extra_body={"mood": "soft"})
        assert answer.choices[0].message.content == "mood=soft volume=1"
        with pytest.raises(openai.BadRequestError, match="`mood` must match"):
            client.chat.completions.create(model="model", messages=messages, extra_body={"mood": "LOUD"})


def test_offline(tmp_path: Any) -> None:
    (tmp_path / "serving.properties").write_text("option.rolling_batch=moody\n")
    plugins = tmp_path / "plugins"
    plugins.mkdir()
    (plugins / "moody.py").write_text(PLUGIN)
    with lmi.load(tmp_path, plugins) as model:
        assert str(model.chat("one", mood="soft")) == "soft"


PLUGIN = """\
from lmi import GenerationParameters, TextBackend, hookimpl

class MoodParameters(GenerationParameters):
    mood: str = "plain"

class MoodyBackend(TextBackend):
    name, parameters_type = "moody", MoodParameters

    def generate(self, prompt, parameters):
        yield parameters.mood

@hookimpl
def lmi_register_backends(register):
    register(MoodyBackend)
"""
