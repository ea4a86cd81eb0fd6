"""Log probabilities of prompts, token ids and the prompt's text in the answers of OpenAI's dialects."""

from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
import pytest_asyncio

from lmi_core.serving.validation import MAX_PROMPT_LOG_PROBS
from lmi_plugins.backends.scripted import Script
from lmi_plugins.trtllm.parameters import TrtllmParameters
from tests.conftest import SCRIPTED, Answer, RunningServer, running_server

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
PATHS = [CHAT, COMPLETIONS]
MESSAGES = [{"role": "user", "content": "Say it"}]
RENDERED = "user: Say it\nassistant:"
BODIES: dict[str, dict[str, Any]] = {CHAT: {"messages": MESSAGES}, COMPLETIONS: {"prompt": RENDERED}}
WORDS = ["One", " two", " three"]
PROPERTIES = f"{SCRIPTED}option.scripted_text=One two three\noption.reasoning_parser=qwen3\n"

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningServer]:
    directory = tmp_path_factory.mktemp("store") / "model"
    directory.mkdir()
    (directory / "serving.properties").write_text(PROPERTIES)
    async with running_server(directory) as server:
        server.scripted.tokenizer.encode("".join(WORDS))  # ids of their own, whichever test comes first
        yield server


async def ask(server: RunningServer, path: str, **fields: Any) -> Answer:
    return await server.post(path, BODIES[path] | fields)


async def answer_of(server: RunningServer, path: str, **fields: Any) -> Any:
    answer = await ask(server, path, **fields)
    assert (answer.status, answer.headers.get("X-Lmi-Ignored-Parameters")) == (200, None), answer.body
    return answer.json()


async def chunks_of(server: RunningServer, path: str, **fields: Any) -> list[Any]:
    answer = await ask(server, path, stream=True, **fields)
    *written, done, nothing = answer.body.split(b"\n\n")
    assert (done, nothing) == (b"data: [DONE]", b""), answer.body
    return [orjson.loads(event.removeprefix(b"data: ")) for event in written]


async def refusal(server: RunningServer, path: str, **fields: Any) -> str:
    before = len(server.scripted.history)
    answer = await ask(server, path, **fields)
    assert (answer.status, len(server.scripted.history)) == (400, before), answer.body
    return str(answer.json()["error"]["message"])


def ids(server: RunningServer, text: str) -> list[int]:
    found: list[int] = server.scripted.tokenizer.encode(text)
    return found


def holder(answer: Any, path: str) -> Any:
    """Return the object with the prompt's details: a chat's answer, or a completion's choice."""
    return answer if path == CHAT else answer["choices"][0]


@pytest.mark.parametrize("path", PATHS)
async def test_prompt_log_probabilities(server: RunningServer, path: str) -> None:
    found = holder(await answer_of(server, path, prompt_logprobs=2), path)["prompt_logprobs"]
    prompt = ids(server, RENDERED)
    assert (len(found), found[0]) == (len(prompt), None)
    word = server.scripted.tokenizer.word
    following = (prompt[1] + 1) % server.scripted.tokenizer.vocabulary_size
    assert list(found[1].items()) == [
        (str(prompt[1]), {"logprob": -0.5, "rank": 1, "decoded_token": word(prompt[1])}),
        (str(following), {"logprob": -1.5, "rank": 2, "decoded_token": word(following)}),
    ]


@pytest.mark.parametrize("path", PATHS)
async def test_prompt_log_probabilities_of_the_prompt_alone(server: RunningServer, path: str) -> None:
    found = holder(await answer_of(server, path, prompt_logprobs=0), path)["prompt_logprobs"]
    assert [list(place) for place in found[1:]] == [[str(each)] for each in ids(server, RENDERED)[1:]]


@pytest.mark.parametrize("path", PATHS)
async def test_prompt_log_probabilities_of_the_whole_vocabulary(server: RunningServer, path: str) -> None:
    found = holder(await answer_of(server, path, prompt_logprobs=-1), path)["prompt_logprobs"]
    size = server.scripted.tokenizer.vocabulary_size
    assert [len(place) for place in found[1:]] == [size] * (len(found) - 1)
    assert sorted(each["rank"] for each in found[1].values()) == list(range(1, size + 1))


async def test_whole_vocabulary_of_a_long_prompt(server: RunningServer) -> None:
    for number in range(MAX_PROMPT_LOG_PROBS // 1024 + 1):
        server.scripted.tokenizer.id(f"word {number}")
    message = await refusal(server, COMPLETIONS, prompt="a " * 1024, prompt_logprobs=-1)
    assert message.startswith(f"`prompt_logprobs` may be -1 for at most {MAX_PROMPT_LOG_PROBS} log probabilities")


async def test_each_choice_of_a_completion_has_its_own_prompt(server: RunningServer) -> None:
    answer = await answer_of(server, COMPLETIONS, prompt=["a b", "c"], n=2, prompt_logprobs=0, return_token_ids=True)
    assert [len(choice["prompt_logprobs"]) for choice in answer["choices"]] == [2, 2, 1, 1]
    prompts = [choice["prompt_token_ids"] for choice in answer["choices"]]
    assert prompts == [ids(server, "a b")] * 2 + [ids(server, "c")] * 2


async def test_prompt_log_probabilities_beside_an_echo(server: RunningServer) -> None:
    """Each has as many of the likeliest as was asked for it."""
    fields: dict[str, Any] = {"prompt": "a b", "echo": True, "max_tokens": 1}
    for logprobs, prompt_logprobs in [(1, 3), (3, 1), (0, 2)]:
        answer = await answer_of(server, COMPLETIONS, logprobs=logprobs, prompt_logprobs=prompt_logprobs, **fields)
        (choice,) = answer["choices"]
        assert len(choice["prompt_logprobs"][1]) == prompt_logprobs
        assert [len(place or ()) for place in choice["logprobs"]["top_logprobs"]] == [0, logprobs or 1, logprobs or 1]


@pytest.mark.parametrize("path", PATHS)
async def test_no_prompt_log_probabilities_in_streams(server: RunningServer, path: str) -> None:
    for value in (2, -1):
        message = await refusal(server, path, prompt_logprobs=value, stream=True)
        assert message.startswith("`prompt_logprobs` must be 0 or null with `stream`"), message
        assert message.endswith(f"Given: {value}")
    assert all("prompt_logprobs" not in chunk for chunk in await chunks_of(server, path, prompt_logprobs=0))
    assert not server.scripted.history[-1].parameters.wants_prefill


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("value", [-2, 21, "two", True])
async def test_prompt_log_probabilities_that_cannot_be(server: RunningServer, path: str, value: object) -> None:
    assert (await refusal(server, path, prompt_logprobs=value)).startswith("`prompt_logprobs` must be ")


@pytest.mark.parametrize("path", PATHS)
async def test_backend_without_log_probabilities_of_prompts(
    server: RunningServer, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.model.backend, "parameters_type", TrtllmParameters)
    message = await refusal(server, path, prompt_logprobs=1)
    assert message.startswith("`prompt_logprobs` is not a field of the scripted backend's parameters"), message


@pytest.mark.parametrize("path", PATHS)
async def test_token_ids(server: RunningServer, path: str) -> None:
    answer = await answer_of(server, path, return_token_ids=True)
    assert holder(answer, path)["prompt_token_ids"] == ids(server, RENDERED)
    assert answer["choices"][0]["token_ids"] == ids(server, "".join(WORDS))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("fields", [{}, {"return_token_ids": False}, {"return_token_ids": None}])
async def test_nothing_that_is_not_asked_for(server: RunningServer, path: str, fields: dict[str, Any]) -> None:
    for answer in [await answer_of(server, path, **fields), *await chunks_of(server, path, **fields)]:
        members = answer | answer["choices"][0]
        assert {members.get(name) for name in ("prompt_token_ids", "token_ids", "prompt_logprobs", "prompt_text")} == {
            None
        }


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("fields", [{}, {"logprobs": 1}, {"stop": [" two four"]}, {"n": 2}])
async def test_token_ids_in_a_stream(server: RunningServer, path: str, fields: dict[str, Any]) -> None:
    if path == CHAT and "logprobs" in fields:
        fields = {"logprobs": True}
    chunks = await chunks_of(server, path, return_token_ids=True, **fields)
    by_choice: dict[int, list[Any]] = {}
    for chunk in chunks:
        by_choice.setdefault(chunk["choices"][0]["index"], []).append(chunk)
    assert len(by_choice) == fields.get("n", 1)
    for first, *others in by_choice.values():
        found = first if path == CHAT else first["choices"][0]
        assert found["prompt_token_ids"] == ids(server, RENDERED)
        assert not any((chunk | chunk["choices"][0]).get("prompt_token_ids") for chunk in others)
        generated = [chunk["choices"][0].get("token_ids") for chunk in (first, *others)]
        assert [each for each in generated if each] == [[each] for each in ids(server, "".join(WORDS))]


async def test_token_ids_beside_an_echo_are_of_the_answer_alone(server: RunningServer) -> None:
    chunks = await chunks_of(server, COMPLETIONS, echo=True, logprobs=0, return_token_ids=True)
    choices = [chunk["choices"][0] for chunk in chunks]
    assert [choice["token_ids"] for choice in choices] == [[each] for each in ids(server, "".join(WORDS))]
    assert choices[0]["text"] == RENDERED + WORDS[0]
    assert len(choices[0]["logprobs"]["tokens"]) == len(ids(server, RENDERED)) + 1
    answer = await answer_of(server, COMPLETIONS, echo=True, max_tokens=0, return_token_ids=True)
    assert answer["choices"][0]["token_ids"] == []


async def test_token_ids_of_calls_and_reasoning_in_a_stream(server: RunningServer) -> None:
    """Tokens that change nothing in the message have chunks too."""
    text = "<think> Hm. </think> Yes."
    server.scripted.enqueue(Script(text))
    chunks = await chunks_of(server, CHAT, return_token_ids=True, logprobs=True)
    found = [each for chunk in chunks for each in chunk["choices"][0].get("token_ids") or ()]
    assert found == ids(server, text)
    details = [chunk["choices"][0]["logprobs"] for chunk in chunks]
    assert sum(len(each["content"]) for each in details if each) == len(found)


@pytest.mark.parametrize("stream", [False, True])
async def test_reasoning_that_is_left_out_is_not_told_by_its_tokens(server: RunningServer, stream: bool) -> None:
    server.scripted.enqueue(Script("<think> Hm. </think> Yes."))
    fields = {"include_reasoning": False, "return_token_ids": True, "logprobs": True}
    if stream:
        answers = await chunks_of(server, CHAT, **fields)
    else:
        answers = [await answer_of(server, CHAT, **fields)]
    assert answers[0]["prompt_token_ids"] == ids(server, RENDERED)
    for choice in (answer["choices"][0] for answer in answers):
        assert (choice["logprobs"], choice.get("token_ids")) == (None, None)


async def test_prompt_text(server: RunningServer) -> None:
    assert (await answer_of(server, CHAT, return_prompt_text=True))["prompt_text"] == RENDERED
    first, *others = await chunks_of(server, CHAT, return_prompt_text=True, stream_options={"include_usage": True})
    assert (first["prompt_text"], first["usage"]) == (RENDERED, None)
    assert not any("prompt_text" in chunk for chunk in others)


async def test_prompt_text_of_completions_is_a_field_that_nobody_knows(server: RunningServer) -> None:
    answer = await ask(server, COMPLETIONS, return_prompt_text=True)
    assert answer.headers["X-Lmi-Ignored-Parameters"] == "return_prompt_text"


@pytest.mark.parametrize(
    ("path", "name", "value"),
    [
        (CHAT, "prompt_logprobs", 0),
        (CHAT, "return_token_ids", True),
        (CHAT, "return_prompt_text", True),
        (COMPLETIONS, "return_token_ids", True),
    ],
)
async def test_what_lmis_form_has_no_place_for(server: RunningServer, path: str, name: str, value: object) -> None:
    answer = await server.post(path, BODIES[path] | {name: value}, headers={"Accept": "application/jsonlines"})
    assert answer.status == 400
    message = answer.json()["error"]["message"]
    assert message.startswith(f"`{name}` must be null unless the answer is in OpenAI's format")
    neutral = await server.post(path, BODIES[path] | {name: None}, headers={"Accept": "application/jsonlines"})
    assert neutral.status == 200


async def test_lmis_form_of_completions_has_its_own_place(server: RunningServer) -> None:
    answer = await server.post(
        COMPLETIONS, BODIES[COMPLETIONS] | {"prompt_logprobs": 1}, headers={"Accept": "application/jsonlines"}
    )
    (*_, last) = answer.json_lines()
    assert answer.status == 200
    assert len(last["details"]["prefill"]) == len(ids(server, RENDERED))
