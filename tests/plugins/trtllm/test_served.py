"""LMI's schema on the trtllm backend: the answers are those of the torch backend."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import pytest_asyncio

from lmi_core.registry.dispatcher import Dispatcher
from lmi_handlers.testing import running_server
from lmi_plugins.backends.trtllm import TrtllmBackend
from tests.conftest import Answer, RunningServer
from tests.module_server import module_server

pytestmark = pytest.mark.asyncio(loop_scope="module")

HELLO = Path(__file__).parents[3] / "examples" / "hello"
QUESTION = "What is Deep Learning?"
ANSWER = "Deep Learning is a really cool field."
LIMITS = "option.max_input_len=40\noption.max_output_len=200\noption.max_beam_width=3\n"


server = module_server(
    f"option.rolling_batch=trtllm\noption.model_id={HELLO}\noption.enable_trt_overlap=true\n{LIMITS}", "hello"
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def torch_server() -> AsyncIterator[RunningServer]:
    async with running_server(HELLO) as server:
        yield server


async def ask(server: RunningServer, text: str = QUESTION, stream: bool = False, **parameters: Any) -> Answer:
    return await server.post("/invocations", {"inputs": text, "stream": stream, "parameters": parameters})


async def text_of(server: RunningServer, text: str = QUESTION, **parameters: Any) -> str:
    answer = await ask(server, text, **parameters)
    assert answer.status == 200, answer.body
    return str(answer.json()["generated_text"])


def backend_of(dispatcher: Dispatcher) -> TrtllmBackend:
    model = dispatcher.registry.only_model
    assert model is not None
    assert isinstance(model.backend, TrtllmBackend)
    return model.backend


async def test_greedy_by_default(server: RunningServer) -> None:
    assert await text_of(server) == ANSWER
    assert await text_of(server, temperature=5.0) == ANSWER
    assert await text_of(server, do_sample=True, top_k=0, top_p=0, temperature=5.0) == ANSWER
    assert await text_of(server, do_sample=False, top_k=50, top_p=0.9, temperature=5.0) == ANSWER


async def test_sampling(server: RunningServer) -> None:
    hot: dict[str, Any] = {"temperature": 5.0, "max_new_tokens": 20}
    for sampled in ({"do_sample": True}, {"top_k": 40}, {"top_p": 0.9}):
        texts = [await text_of(server, seed=seed, **sampled, **hot) for seed in (1, 2, 1)]
        assert texts[0] == texts[2] != texts[1]
    unseeded = {await text_of(server, do_sample=True, top_k=500, top_p=1.0, **hot) for _ in range(3)}
    assert len(unseeded) == 3


@pytest.mark.parametrize(
    "parameters",
    [
        {"max_new_tokens": 3},
        {"stop_sequences": [" really", "zzz"]},
        {"stop_sequences": ["cool fie"]},
        {"bad_sequences": ["cool"]},
        {"repetition_penalty": 1.5, "max_new_tokens": 40},
        {"no_repeat_ngram_size": 2, "min_length": 30, "max_new_tokens": 50},
        {"ignore_eos_token": True, "max_new_tokens": 40},
        {"decoder_input_details": True},
        {"logit_bias": {"40": -100.0}, "max_new_tokens": 6},
        {"logprobs": 3, "stop_sequences": ["cool fie"]},
        {"logprobs": 2, "num_beams": 2, "length_penalty": 1.0, "min_length": 0},
        {"n": 3, "do_sample": True, "seed": 4, "temperature": 5.0, "top_k": 40, "top_p": 0.9, "logprobs": 1},
        {"n": 2, "num_beams": 3, "length_penalty": 1.0, "min_length": 0},
    ],
    ids="-".join,
)
async def test_the_same_as_from_the_torch_backend(
    server: RunningServer, torch_server: RunningServer, parameters: dict[str, Any]
) -> None:
    """Log probabilities too, but for rounding: batches differ."""
    ours, theirs = [(await ask(each, details=True, **parameters)).json() for each in (server, torch_server)]
    assert rounded(ours) == rounded(theirs)


def rounded(value: Any) -> Any:
    match value:
        case dict():
            return {name: rounded(each) for name, each in value.items()}
        case list():
            return [rounded(each) for each in value]
        case float():
            return pytest.approx(value, abs=1e-3)
    return value


CHAT = {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 5}


@pytest.mark.parametrize("path", ["/invocations", "/v1/chat/completions"])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "fields",
    [
        {"logprobs": True, "top_logprobs": 1, "temperature": 0},
        {"n": 2, "temperature": 0, "logprobs": True, "top_logprobs": 2},
        {"logit_bias": {"40": -100.0, "640": -100.0}, "temperature": 0},
    ],
    ids="-".join,
)
async def test_chats_as_from_the_torch_backend(
    server: RunningServer, torch_server: RunningServer, path: str, stream: bool, fields: dict[str, Any]
) -> None:
    """LMI's chat schema holds for every backend: the fields that TensorRT-LLM has no tensors for work too."""
    answers = [await each.post(path, CHAT | fields | {"stream": stream}) for each in (server, torch_server)]
    ours, theirs = [choices_of(answer, stream) for answer in answers]
    assert len(ours) == fields.get("n", 1)
    assert ours == theirs


def choices_of(answer: Answer, stream: bool) -> dict[int, Any]:
    """Return each choice of a chat's answer, its pieces joined: those that wait together are sent as one."""
    assert answer.status == 200, answer.body
    lines = [line.removeprefix(b"data: ") for line in answer.body.splitlines() if line.startswith((b"data: {", b"{"))]
    found: dict[int, Any] = {}
    for choice in [choice for line in lines for choice in orjson.loads(line)["choices"]]:
        found[choice["index"]] = joined(found.get(choice["index"]), rounded(choice))
    assert len(lines) > 1 if stream else len(lines) == 1
    return found


def joined(before: Any, piece: Any, name: str = "") -> Any:
    """Return texts, lists and the members of objects joined; of other values and of roles, the latest."""
    if before is None or piece is None:
        return before if piece is None else piece
    if isinstance(piece, dict):
        return before | {each: joined(before.get(each), value, each) for each, value in piece.items()}
    return before + piece if isinstance(piece, str | list) and name != "role" else piece


@pytest.mark.parametrize("reason", ["eos_token", "stop_sequence", "length"])
async def test_finish_reasons(server: RunningServer, reason: str) -> None:
    given: dict[str, dict[str, Any]] = {
        "eos_token": {},
        "stop_sequence": {"stop_sequences": ["cool"]},
        "length": {"max_new_tokens": 4},
    }
    details = (await ask(server, details=True, **given[reason])).json()["details"]
    assert details["finish_reason"] == reason
    assert backend_of(server.dispatcher).engine.in_flight == 0


async def test_the_stop_text_that_ended_an_answer(server: RunningServer) -> None:
    body = {"max_tokens": 40, "temperature": 0, "messages": [{"role": "user", "content": QUESTION}]}
    whole = (await server.post("/v1/messages", body)).json()["content"][0]["text"]
    stop = whole[4:9]
    ended = (await server.post("/v1/messages", body | {"stop_sequences": ["zzz", stop]})).json()
    assert (ended["content"][0]["text"], ended["stop_sequence"]) == (whole[: whole.index(stop)], stop)


async def test_a_stream(server: RunningServer) -> None:
    lines = (await ask(server, stream=True, details=True)).json_lines()
    assert "".join(line["token"]["text"] for line in lines) == ANSWER
    assert (lines[-1]["generated_text"], lines[-1]["details"]["finish_reason"]) == (ANSWER, "eos_token")
    assert all(line["token"]["log_prob"] < 0 for line in lines)


async def test_min_length_is_1_by_default(server: RunningServer) -> None:
    """The prompt with its answer, after which nothing but the end comes."""
    whole = f"{QUESTION}{ANSWER}"
    ended = (await ask(server, whole, min_length=0, details=True)).json()["details"]
    assert (ended["generated_tokens"], ended["finish_reason"]) == (1, "eos_token")
    assert (await ask(server, whole, details=True)).json()["details"]["generated_tokens"] > 1


async def test_penalties(server: RunningServer) -> None:
    given: dict[str, Any] = {"max_new_tokens": 60, "ignore_eos_token": True}
    plain = await text_of(server, **given)
    for penalty in ("presence_penalty", "frequency_penalty"):
        assert await text_of(server, QUESTION, **{penalty: 4.0}, **given) != plain
        assert await text_of(server, QUESTION, **{penalty: 0.0}, **given) == plain


async def test_beams(server: RunningServer, torch_server: RunningServer) -> None:
    given: dict[str, Any] = {"num_beams": 3, "max_new_tokens": 25, "length_penalty": 1.0, "min_length": 0}
    ours, theirs = [(await ask(each, details=True, **given)).json() for each in (server, torch_server)]
    assert rounded(ours) == rounded(theirs)
    assert len(ours["details"]["best_of_sequences"]) == 2


async def test_limits(server: RunningServer) -> None:
    longest = "a b c d " * 10
    refused = await ask(server, longest + "e e e")
    assert refused.status == 424
    assert refused.json()["error"].startswith("`inputs` must be at most 40 tokens long. Given: ")
    refused = await ask(server, max_new_tokens=201)
    assert refused.json()["error"] == "`max_new_tokens` must be at most 200. Given: 201"
    assert (await ask(server, max_new_tokens=200)).status == 200
    refused = await ask(server, num_beams=4)
    assert refused.status == 424
    assert refused.json()["error"] == "`num_beams` must be at most 3 (max_beam_width). Given: 4"


async def test_a_dialect_without_a_length_gets_as_much_as_there_may_be(server: RunningServer) -> None:
    chat = {"messages": [{"role": "user", "content": QUESTION}], "temperature": 0}
    answer = (await server.post("/v1/chat/completions", chat)).json()
    assert answer["choices"][0]["message"]["content"] == ANSWER


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"top_p": 1.5}, "`top_p` must be"),
        ({"stop": 3}, "`stop` must be"),
        ({"guided_regex": "a+"}, "`guided_regex` is not a field of the trtllm backend's parameters."),
        ({"n": 3, "num_beams": 2}, "`n` must be at most `num_beams`, 2. Given: 3"),
        ({"logit_bias": {"one": 1.0}}, "`logit_bias` must map token ids to numbers. Given: 'one'"),
        ({"logit_bias": {"99999": 1.0}}, "`logit_bias` must contain token ids from 0 to 1023. Given: 99999"),
        ({"min_p": 0.1}, "`min_p` is not a field of the trtllm backend's parameters."),
    ],
)
async def test_parameters_that_are_refused(server: RunningServer, parameters: dict[str, Any], message: str) -> None:
    refused = await ask(server, **parameters)
    assert refused.status == 424
    assert refused.json()["error"].startswith(message)


async def test_stop_ends_the_requests_of_the_same_id(server: RunningServer) -> None:
    payload = {"inputs": QUESTION, "stream": True, "parameters": {"max_new_tokens": 200, "ignore_eos_token": True}}
    headers = {"x-request-id": "long"}
    async with server.client.post("/invocations", json=payload, headers=headers) as response:
        first = await response.content.readline()
        stopped = await server.post("/invocations", {"inputs": "a", "parameters": {"stop": True}}, headers=headers)
        rest = await response.content.read()
    assert first
    assert stopped.json() == {"generated_text": ""}
    last = rest.splitlines()[-1]
    assert b'"generated_text"' in last
    assert len(rest.splitlines()) < 199
    assert backend_of(server.dispatcher).engine.in_flight == 0


async def test_closing_stops_the_request(server: RunningServer) -> None:
    backend = backend_of(server.dispatcher)
    payload = {"inputs": QUESTION, "stream": True, "parameters": {"max_new_tokens": 200, "ignore_eos_token": True}}
    async with server.client.post("/invocations", json=payload) as response:
        await response.content.readline()
        assert backend.engine.in_flight == 1
    async with asyncio.timeout(60):
        while backend.engine.in_flight:
            await asyncio.sleep(0.01)
    assert await text_of(server) == ANSWER


async def test_many_at_once(server: RunningServer) -> None:
    answers = await asyncio.gather(*(text_of(server, max_new_tokens=count) for count in range(1, 31)))
    whole = answers[-1]
    assert whole == ANSWER
    assert all(whole.startswith(answer.rstrip("\ufffd")) for answer in answers)
    assert len(set(answers)) > 10
