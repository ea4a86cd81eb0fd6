"""OpenAI's completions over a real socket."""

from typing import Any

import orjson
import pytest

from lmi_core.generation.parameters import ExtendedParameters
from lmi_plugins.backends.scripted import Script
from tests import golden
from tests.conftest import SCRIPTED, Answer, ModelDirectory, RunningServer, Serve
from tests.handlers.openai.chats import EMPTY_ANSWER, EMPTY_CHOICE, EMPTY_PROMPT

PATH = "/v1/completions"
TEXT = "Deep Learning is a really cool field."
WORDS = ["Deep", " Learning", " is", " a", " really", " cool", " field."]
PROMPT = "What is it?"


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED}))


async def complete(server: RunningServer, headers: dict[str, str] | None = None, **fields: Any) -> Answer:
    return await server.post(PATH, {"prompt": PROMPT} | fields, headers=headers)


async def choice_of(server: RunningServer, **fields: Any) -> Any:
    answer = await complete(server, **fields)
    assert answer.status == 200, answer.body
    (choice,) = answer.json()["choices"]
    return choice


def events(answer: Answer) -> list[Any]:
    """Return the JSON events of a stream, asserting that it ended as it should."""
    assert answer.content_type == "text/event-stream"
    *written, done, nothing = answer.body.split(b"\n\n")
    assert (done, nothing) == (b"data: [DONE]", b"")
    return [orjson.loads(event.removeprefix(b"data: ")) for event in written]


async def test_whole_answer(server: RunningServer) -> None:
    answer = await complete(server, headers={"x-request-id": "mine"})
    assert (answer.status, answer.content_type) == (200, "application/json")
    content = answer.json()
    assert content.pop("created") >= server.model.created
    choice = {"index": 0, "text": TEXT, "logprobs": None, "finish_reason": "stop", "stop_reason": None}
    assert content == {
        **EMPTY_ANSWER,
        "id": "cmpl-mine",
        "object": "text_completion",
        "model": "model",
        "system_fingerprint": server.model.fingerprint,
        "choices": [choice | EMPTY_CHOICE | EMPTY_PROMPT],
        "usage": {"prompt_tokens": 3, "completion_tokens": 7, "total_tokens": 10},
    }


async def test_defaults(server: RunningServer) -> None:
    await complete(server)
    assert server.scripted.history[-1].parameters == ExtendedParameters(
        do_sample=True, temperature=1.0, max_new_tokens=16
    )


async def test_default_length_gives_way_to_the_context(server: RunningServer) -> None:
    server.scripted.max_length = 8
    assert (await choice_of(server))["text"] == "Deep Learning is a really"
    answer = await complete(server, max_tokens=16)
    assert (answer.status, answer.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert answer.json()["error"]["message"].startswith("This model's maximum context length is 8 tokens. However, ")


async def test_several_prompts(server: RunningServer) -> None:
    server.scripted.enqueue(Script("one"), Script("two"))
    answer = (await complete(server, prompt=["a", "b c"], n=2)).json()
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    assert [choice["text"] for choice in answer["choices"]] == ["one", "one", "two", "two"]
    assert answer["usage"] == {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}


async def test_token_ids(server: RunningServer) -> None:
    ids = server.scripted.tokenizer.encode("a b")
    one = await complete(server, prompt=ids, echo=True)
    several = await complete(server, prompt=[ids, ids[:1]], echo=True)
    assert [choice["text"] for choice in one.json()["choices"]] == ["a b" + TEXT]
    assert [choice["text"] for choice in several.json()["choices"]] == ["a b" + TEXT, "a" + TEXT]


async def test_token_id_that_there_is_not(server: RunningServer) -> None:
    last = server.scripted.tokenizer.encode("a b")[-1]
    for wrong in (last + 1, -1):
        error = (await complete(server, prompt=[wrong])).json()["error"]
        assert error["message"] == f"`prompt` must contain token ids from 0 to {last}; {wrong} is out of vocabulary"


async def test_best_of(server: RunningServer) -> None:
    answer = (await complete(server, n=1, best_of=3, logprobs=0)).json()
    (choice,) = answer["choices"]
    assert choice["logprobs"]["token_logprobs"] == [-0.25] * 7
    assert answer["usage"]["completion_tokens"] == 21


async def test_echo(server: RunningServer) -> None:
    assert (await choice_of(server, echo=True))["text"] == PROMPT + TEXT


async def test_log_probabilities(server: RunningServer) -> None:
    log_probs = (await choice_of(server, logprobs=2, max_tokens=2))["logprobs"]
    assert log_probs == {
        "tokens": ["Deep", " Learning"],
        "token_logprobs": [-0.25, -0.25],
        "top_logprobs": [{"Deep": -0.25, " Learning": -1.25}, {" Learning": -0.25, " a": -1.25}],
        "text_offset": [0, 4],
    }


async def test_log_probabilities_without_the_likeliest(server: RunningServer) -> None:
    log_probs = (await choice_of(server, logprobs=0))["logprobs"]
    assert (log_probs["tokens"], log_probs["top_logprobs"]) == (WORDS, [{word: -0.25} for word in WORDS])


async def test_echo_with_log_probabilities(server: RunningServer) -> None:
    log_probs = (await choice_of(server, echo=True, logprobs=1, max_tokens=1))["logprobs"]
    assert log_probs == {
        "tokens": ["What", " is", " it?", "Deep"],
        "token_logprobs": [None, -0.5, -0.5, -0.25],
        "top_logprobs": [None, {" is": -0.5}, {" it?": -0.5}, {"Deep": -0.25}],
        "text_offset": [0, 4, 7, 11],
    }


@pytest.mark.parametrize("stream", [False, True])
async def test_only_the_prompt(server: RunningServer, stream: bool) -> None:
    answer = await complete(server, echo=True, logprobs=0, max_tokens=0, stream=stream)
    if stream:
        choices = [chunk["choices"][0] for chunk in events(answer)]
    else:
        choices = answer.json()["choices"]
        assert answer.json()["usage"] == {"prompt_tokens": 3, "completion_tokens": 0, "total_tokens": 3}
    assert [(choice["text"], choice["finish_reason"]) for choice in choices] == [(PROMPT, "length")]
    assert choices[0]["logprobs"]["token_logprobs"] == [None, -0.5, -0.5]


async def test_stream(server: RunningServer) -> None:
    chunks = events(await complete(server, stream=True))
    assert [chunk["choices"][0]["text"] for chunk in chunks] == WORDS
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * 6 + ["stop"]
    assert all(set(chunk) == {"id", "object", "created", "model", "system_fingerprint", "choices"} for chunk in chunks)


async def test_tokens_of_a_step_share_an_event(server: RunningServer) -> None:
    """Tokens that a stop sequence held back come in one step."""
    chunks = events(await complete(server, stream=True, stop=[" really cool fish"]))
    texts = [*WORDS[:4], "".join(WORDS[4:])]
    assert [chunk["choices"][0]["text"] for chunk in chunks] == texts
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * (len(texts) - 1) + ["stop"]


async def test_each_token_of_a_step_has_an_event_for_its_log_probability(server: RunningServer) -> None:
    chunks = events(await complete(server, stream=True, logprobs=0, stop=[" really cool fish", "field"]))
    choices = [chunk["choices"][0] for chunk in chunks]
    assert [choice["text"] for choice in choices] == [*WORDS[:6], " "]
    assert [choice["logprobs"]["tokens"] for choice in choices] == [[word] for word in WORDS]
    assert [choice["logprobs"]["text_offset"] for choice in choices] == [[0], [4], [13], [16], [18], [25], [30]]
    assert [choice["finish_reason"] for choice in choices] == [None] * 6 + ["stop"]


async def test_stream_of_several_prompts(server: RunningServer) -> None:
    server.scripted.enqueue(Script("one two"), Script("three"))
    chunks = events(await complete(server, prompt=["a", "b"], n=2, stream=True, stream_options={"include_usage": True}))
    *chunks, last = chunks
    texts = ["", "", "", ""]
    for chunk in chunks:
        texts[chunk["choices"][0]["index"]] += chunk["choices"][0]["text"]
    assert texts == ["one two", "one two", "three", "three"]
    assert (last["choices"], last["usage"]["completion_tokens"]) == ([], 6)


async def test_stream_with_echo_and_log_probabilities(server: RunningServer) -> None:
    chunks = events(await complete(server, stream=True, echo=True, logprobs=1, max_tokens=2))
    choices = [chunk["choices"][0] for chunk in chunks]
    assert [choice["text"] for choice in choices] == [PROMPT + "Deep", " Learning"]
    assert [choice["logprobs"]["text_offset"] for choice in choices] == [[0, 4, 7, 11], [15]]


@pytest.mark.parametrize("prompt", ["What is it?", [0, 1, 2]])
@pytest.mark.parametrize(("most", "left"), [(2, [" is", " it?"]), (9, ["What", " is", " it?"])])
@pytest.mark.parametrize("stream", [False, True])
async def test_echo_of_a_truncated_prompt(
    server: RunningServer, prompt: str | list[int], most: int, left: list[str], stream: bool
) -> None:
    """The echo is the whole prompt; the tokens are those that are left of it, each where it is in the text."""
    await complete(server, prompt="What is it?")  # so that the tokenizer has the ids
    answer = await complete(
        server, prompt=prompt, truncate_prompt_tokens=most, echo=True, logprobs=0, max_tokens=2, stream=stream
    )
    choices = [each["choices"][0] for each in (events(answer) if stream else [answer.json()])]
    text = "".join(choice["text"] for choice in choices)
    tokens = [token for choice in choices for token in choice["logprobs"]["tokens"]]
    offsets = [offset for choice in choices for offset in choice["logprobs"]["text_offset"]]
    assert text == "What is it?Deep Learning"
    assert tokens == [*left, "Deep", " Learning"]
    assert [text[offset:][: len(token)] for token, offset in zip(tokens, offsets, strict=True)] == tokens


@pytest.mark.parametrize("stream", [False, True])
async def test_truncation_at_the_right(server: RunningServer, stream: bool) -> None:
    fields: dict[str, Any] = {
        "truncate_prompt_tokens": 2,
        "truncation_side": "right",
        "echo": True,
        "logprobs": 0,
        "max_tokens": 1,
    }
    answer = await complete(server, prompt="What is it?", stream=stream, **fields)
    assert server.scripted.tokenizer.decode(list(server.scripted.history[-1].prompt_ids)) == "What is"
    choice = (events(answer) if stream else [answer.json()])[0]["choices"][0]
    assert choice["logprobs"]["tokens"][:2] == ["What", " is"]
    assert choice["logprobs"]["text_offset"][:2] == [0, 4]


async def test_failure_within_a_stream(server: RunningServer) -> None:
    server.scripted.enqueue(Script("one", error="the engine fell over"))
    *_, last = events(await complete(server, stream=True))
    assert last["error"]["message"] == "the engine fell over"


async def test_failure_within_a_whole_answer(server: RunningServer) -> None:
    server.scripted.enqueue(Script("one", error="the engine fell over"))
    assert (await complete(server)).status == 500


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        (
            {"prompt": None},
            "prompt",
            "must be a string, a list of token ids, or a list of strings or of lists of token ids",
        ),
        (
            {"prompt": []},
            "prompt",
            "must be a string, a list of token ids, or a list of strings or of lists of token ids",
        ),
        (
            {"prompt": ["a", 1]},
            "prompt",
            "must be a string, a list of token ids, or a list of strings or of lists of token ids",
        ),
        (
            {"prompt": [True]},
            "prompt",
            "must be a string, a list of token ids, or a list of strings or of lists of token ids",
        ),
        ({"prompt": ""}, "prompt", "must contain at least one token. Given: 0"),
        ({"logprobs": 21}, "logprobs", "must be less than or equal to 20. Given: 21"),
        ({"suffix": "end"}, "suffix", "is not supported by this model: its tokenizer has no fill-in-the-middle"),
        (
            {"suffix": "end", "echo": True},
            "suffix",
            "and `echo` cannot be used together: the answer contains only the text",
        ),
        (
            {"suffix": "end", "truncate_prompt_tokens": 3},
            "suffix",
            "and `truncate_prompt_tokens` cannot be used together: ",
        ),
        ({"suffix": "end", "prompt": [[1, 2]]}, "suffix", "requires a `prompt` that is a string. Given: token ids"),
        ({"max_tokens": 0}, "max_tokens", "must be at least 1 without `echo`. Given: 0"),
        ({"n": 2, "best_of": 1}, "best_of", "must be at least `n`, which is 2. Given: 1"),
        (
            {"best_of": 2, "stream": True},
            "best_of",
            "must be at most 1, the number of sequences in the stream. Given: 2",
        ),
        ({"prompt": ["a"] * 600, "n": 2}, "prompt", "and `n` must result in at most 1024 choices"),
        ({"prompt_embeds": "AA=="}, "prompt_embeds", "must be null or []: prompts must be strings or token ids."),
        ({"temperature": -1}, "temperature", "must be greater than or equal to 0. Given: -1"),
    ],
)
async def test_invalid_request(server: RunningServer, fields: dict[str, Any], param: str, message: str) -> None:
    answer = await complete(server, **fields)
    assert answer.status == 400
    error = answer.json()["error"]
    assert error["message"].startswith(f"`{param}` {message}")
    assert (error["type"], error["param"]) == ("invalid_request_error", param)


async def test_prompt_longer_than_the_context(server: RunningServer) -> None:
    answer = await complete(server, prompt="word " * 3000)
    assert (answer.status, answer.json()["error"]) == (
        400,
        {
            "message": "This model's maximum context length is 2048 tokens. However, "
            "`prompt` must be at most 2047 tokens long. Given: 3001",
            "type": "invalid_request_error",
            "param": "prompt",
            "code": "context_length_exceeded",
        },
    )


async def test_empty_suffix(server: RunningServer) -> None:
    assert (await complete(server, suffix="")).status == 200


@pytest.mark.parametrize("stream", [False, True])
async def test_suffix(server: RunningServer, stream: bool) -> None:
    """A prompt with the texts of a format's tokens, whose answer is the middle and ends at any of these."""
    tokenizer = server.scripted.tokenizer
    prefix, suffix, middle, pad = [tokenizer.id(f"<|fim_{part}|>") for part in ("prefix", "suffix", "middle", "pad")]
    prompts = ["def add(a, b):", "x ="]
    answer = await complete(server, prompt=prompts, suffix=" c", stop_token_ids=[pad, 7], stream=stream)
    chunks = events(answer) if stream else [answer.json()]
    for index in range(2):
        assert "".join(one["text"] for chunk in chunks for one in chunk["choices"] if one["index"] == index) == TEXT
    for prompt, request in zip(prompts, server.scripted.history, strict=True):
        assert request.prompt_ids == [prefix, *tokenizer.encode(prompt), suffix, *tokenizer.encode(" c"), middle]
        assert isinstance(request.parameters, ExtendedParameters)
        assert request.parameters.stop_token_ids == [pad, 7, prefix, suffix, middle]


async def test_user_is_in_the_log(server: RunningServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "lmi_handlers.fields.passed")
    await complete(server, headers={"x-request-id": "mine"}, user="bob")
    assert "request mine was sent by user 'bob'" in caplog.messages


async def test_lmi_form_by_accept(server: RunningServer) -> None:
    answer = await complete(server, headers={"Accept": "application/jsonlines"}, echo=True)
    assert answer.content_type == "application/jsonlines"
    assert answer.json_lines()[-1]["generated_text"] == PROMPT + TEXT
    several = await complete(server, headers={"Accept": "application/jsonlines"}, prompt=["a", "b"])
    assert several.json()["error"]["message"] == "`prompt` must be a single prompt for an answer in the LMI schema"
    nothing = await complete(server, headers={"Accept": "application/jsonlines"}, echo=True, max_tokens=0)
    assert nothing.status == 400
    assert nothing.json()["error"]["message"] == (
        "`max_tokens` must be at least 1 for an answer in the LMI schema. Given: 0"
    )


async def test_lmi_form_by_output_formatter(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED + "option.output_formatter=json\n"}))
    answer = await complete(server, logprobs=1)
    assert set(answer.json()) == {"generated_text", "details"}


def dialect(prompt: str, parameters: dict[str, Any], form: str) -> tuple[str, object]:
    names = {"max_new_tokens": "max_tokens", "stop_sequences": "stop"}
    fields = {names.get(name, name): value for name, value in parameters.items()}
    return PATH, {"prompt": prompt, "stream": form == "stream"} | fields


@pytest.mark.parametrize("case", golden.CASES)
@pytest.mark.parametrize("form", golden.FORMS)
async def test_golden_transcript(server: RunningServer, form: str, case: str) -> None:
    await golden.replay(server, "openai_completions", dialect, form, case)
