"""Several sequences, likeliest tokens and cut prompts in the LMI schema, over a real socket."""

from typing import Any

import pytest

from tests.conftest import SCRIPTED, Answer, ModelDirectory, RunningServer, Serve

PROMPT = "What is Deep Learning?"


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED}))


async def ask(server: RunningServer, stream: bool = False, **parameters: Any) -> Answer:
    return await server.post("/invocations", {"inputs": PROMPT, "stream": stream, "parameters": parameters})


@pytest.mark.parametrize(
    ("asked", "others"),
    [
        ({"n": 3}, [-0.5, -0.75]),
        ({"n": 2, "best_of": 4}, [-0.5]),
        ({"n": 1, "best_of": 4}, [-0.5, -0.75, -1.0]),
        ({"best_of": 3}, [-0.5, -0.75]),
        ({"num_beams": 2}, [-0.5]),
    ],
)
async def test_the_likeliest_are_the_answer(server: RunningServer, asked: dict[str, Any], others: list[float]) -> None:
    details = (await ask(server, details=True, max_new_tokens=1, **asked)).json()["details"]
    assert details["tokens"][0]["log_prob"] == -0.25
    assert [other["tokens"][0]["log_prob"] for other in details["best_of_sequences"]] == others


@pytest.mark.parametrize("name", ["n", "best_of", "num_beams"])
@pytest.mark.parametrize("properties", ["", "option.output_formatter=sse\n", "option.tgi_compat=true\n"])
async def test_a_stream_has_one_sequence(serve: Serve, model_dir: ModelDirectory, properties: str, name: str) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED + properties}))
    refused = await ask(server, stream=True, **{name: 2})
    assert refused.status == 424
    assert b"`n`, `best_of` and `num_beams` must be 1 in a stream" in refused.body
    assert server.scripted.history == []
    assert (await ask(server, stream=True, **{name: 1})).status == 200


@pytest.mark.parametrize(("parameters", "others"), [({"n": 2}, 1), ({"best_of": 3}, 2), ({"num_beams": 2}, 1)])
async def test_several_sequences_are_details_without_being_asked_for(
    server: RunningServer, parameters: dict[str, Any], others: int
) -> None:
    answer = (await ask(server, **parameters)).json()
    assert answer["generated_text"]
    assert len(answer["details"]["best_of_sequences"]) == others


async def test_likeliest_tokens(server: RunningServer) -> None:
    (token,) = (await ask(server, details=True, max_new_tokens=1, logprobs=2)).json()["details"]["tokens"]
    assert [set(top) for top in token["top_tokens"]] == [{"id", "text", "log_prob"}] * 2
    assert token["top_tokens"][0] == {name: token[name] for name in ("id", "text", "log_prob")}
    (line,) = (await ask(server, stream=True, max_new_tokens=1, top_n_tokens=3)).json_lines()
    assert len(line["token"]["top_tokens"]) == 3
    (line,) = (await ask(server, stream=True, max_new_tokens=1)).json_lines()
    assert set(line["token"]) == {"id", "text", "log_prob"}


async def test_likeliest_tokens_beside_the_tokens(server: RunningServer) -> None:
    details = (await ask(server, details=True, max_new_tokens=2, top_n_tokens=2)).json()["details"]
    assert details["top_tokens"] == [token["top_tokens"] for token in details["tokens"]]
    others = (await ask(server, details=True, max_new_tokens=2, logprobs=2)).json()["details"]
    assert "top_tokens" not in others


async def test_likeliest_tokens_of_the_prompt(server: RunningServer) -> None:
    details = (await ask(server, details=True, max_new_tokens=1, prompt_logprobs=1)).json()["details"]
    first, *others = details["prefill"]
    assert "top_tokens" not in first
    assert all(len(token["top_tokens"]) == 1 for token in others)
    (token,) = details["tokens"]
    assert "top_tokens" not in token


async def test_likeliest_tokens_as_tgi_has_them(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED + "option.tgi_compat=true\n"}))
    (answer,) = (await ask(server, details=True, max_new_tokens=2, top_n_tokens=2, prompt_logprobs=1)).json()
    assert [[set(top) for top in tops] for tops in answer["details"]["top_tokens"]] == [
        [{"id", "text", "log_prob", "logprob", "special"}] * 2
    ] * 2
    assert all("top_tokens" not in token for token in answer["details"]["tokens"])
    assert ["top_tokens" in token for token in answer["details"]["prefill"]] == [False, True, True, True]
    (event,) = (await ask(server, stream=True, max_new_tokens=1, top_n_tokens=2)).events(b"data: ")
    assert len(event["top_tokens"]) == 2
    (event,) = (await ask(server, stream=True, max_new_tokens=1)).events(b"data: ")
    assert "top_tokens" not in event


async def test_the_other_sequences_have_the_details_asked_for(server: RunningServer) -> None:
    answer = await ask(server, n=2, details=True, max_new_tokens=2, top_n_tokens=2, decoder_input_details=True)
    details = answer.json()["details"]
    (other,) = details["best_of_sequences"]
    assert other["top_tokens"] == [token["top_tokens"] for token in other["tokens"]]
    assert other["top_tokens"][0][0]["log_prob"] == -0.5
    assert other["prefill"] == details["prefill"]


@pytest.mark.parametrize("given", [{}, {"top_n_tokens": 2, "decoder_input_details": True}])
async def test_the_other_sequences_as_tgi_has_them(
    serve: Serve, model_dir: ModelDirectory, given: dict[str, Any]
) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED + "option.tgi_compat=true\n"}))
    (answer,) = (await ask(server, n=2, max_new_tokens=1, seed=7, **given)).json()
    details = answer["details"]
    (other,) = details.pop("best_of_sequences")
    assert set(other) == set(details) - {"inputs"} | {"generated_text"}
    assert (other["seed"], other["prefill"]) == (7, details["prefill"])
    for tokens in (other["tokens"], *other.get("top_tokens", ())):
        assert {frozenset(token) for token in tokens} == {frozenset(("id", "text", "log_prob", "logprob", "special"))}
    assert other["tokens"][0]["logprob"] == -0.5


async def test_a_cut_prompt(server: RunningServer) -> None:
    answer = await ask(server, truncate=2, details=True, decoder_input_details=True, max_new_tokens=1)
    assert "".join(token["text"] for token in answer.json()["details"]["prefill"]) == " Deep Learning?"
    assert answer.json()["details"]["inputs"] == PROMPT
    long = {"inputs": "word " * 5000, "parameters": {"truncate": 10, "max_new_tokens": 1}}
    assert (await server.post("/invocations", long)).status == 200
